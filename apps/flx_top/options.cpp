#include "apps/flx_top/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "apps/flx_top/hosts.h"

namespace flx::top {

bool parse(int argc, char **argv, Options &options, int &code) {
    CLI::App app(
        "Shows what programs that use FLX do on this host: their ranks, calls and links, and who waits for whom. "
        "They need not be started again.",
        "flx_top");
    bool once = false;
    bool json = false;
    bool prometheus = false;
    options.user = getuid();
    app.add_flag("--once", once, "print it once, as text");
    app.add_flag("--explain", options.explain,
                 "name the rank that the others wait for, what it does, and what to do; once, as text");
    auto *as_json = app.add_flag("--json", json, "once, as JSON, for scripts");
    auto *as_prometheus = app.add_flag("--prometheus", prometheus, "once, as Prometheus reads it, which asks each host")
                              ->excludes(as_json);
    app.add_option("--to", options.to,
                   "with --json or --prometheus: a file that is replaced as a whole, such as node_exporter's textfile");
    app.add_option("--user", options.user, "the id of the user whose programs are looked at")->default_str("your own");
    auto *hosts = app.add_option("--hosts", options.hosts, "look at these hosts: a list h1,h2,…; else at this one")
                      ->delimiter(',')
                      ->check([](const std::string &name) {
                          return is_host(name) ? "" : "'" + name + "' is no host's name: letters, digits and . _ - : @";
                      });
    app.add_option("--reach", options.reach, "a shell's command that runs what follows it on host {}")
        ->capture_default_str()
        ->needs(hosts);
    hosts->excludes(as_prometheus);
    app.add_flag("--answer", options.answer, "print a look for each line that is read, for an flx_top elsewhere")
        ->excludes(hosts);
    app.add_option("--interval", options.interval_s, "seconds between two looks")
        ->check(CLI::Range(0.05, 3600.0))
        ->capture_default_str();
    app.add_option("--patience", options.patience_s, "seconds after which a call is one that waits")
        ->check(CLI::Range(0.0, 86400.0))
        ->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        code = app.exit(error);
        return false;
    }
    if (json)
        options.form = Form::json;
    else if (prometheus)
        options.form = Form::prometheus;
    else if (once || options.explain)
        options.form = Form::text;
    if (!options.to.empty() && !json && !prometheus) {
        code = app.exit(CLI::ValidationError("--to", "goes with --json or --prometheus"));
        return false;
    }
    return true;
}

}  // namespace flx::top
