#include "apps/flx_top/options.h"

#include <unistd.h>

#include "apps/common/command_line.h"
#include "apps/flx_top/hosts.h"

namespace flx::top {

bool parse(int argc, char **argv, Options &options, int &code) {
    apps::CommandLine line(
        "flx_top",
        "Shows what programs that use FLX do on this host: their ranks, calls and links, and who waits for whom. "
        "They need not be started again.");
    bool once = false;
    bool json = false;
    bool prometheus = false;
    options.user = getuid();
    line.flag("--once", once, "print it once, as text");
    line.flag("--explain", options.explain,
              "name the rank that the others wait for, what it does, and what to do; once, as text");
    const auto as_json = line.flag("--json", json, "once, as JSON, for scripts");
    const auto as_prometheus =
        line.flag("--prometheus", prometheus, "once, as Prometheus reads it, which asks each host").excludes(as_json);
    line.option("--to", options.to,
                "with --json or --prometheus: a file that is replaced as a whole, such as node_exporter's textfile");
    line.option("--user", options.user, "the id of the user whose programs are looked at").shows_default("your own");
    auto hosts = line.option("--hosts", options.hosts, "look at these hosts: a list h1,h2,…; else at this one")
                     .as_list()
                     .checked([](const std::string &name) {
                         return is_host(name) ? "" : "'" + name + "' is no host's name: letters, digits and . _ - : @";
                     });
    line.option("--reach", options.reach, "a shell's command that runs what follows it on host {}")
        .shows_default()
        .needs(hosts);
    hosts.excludes(as_prometheus);
    line.flag("--answer", options.answer, "print a look for each line that is read, for an flx_top elsewhere")
        .excludes(hosts);
    line.option("--interval", options.interval_s, "seconds between two looks").in_range(0.05, 3600.0).shows_default();
    line.option("--patience", options.patience_s, "seconds after which a call is one that waits")
        .in_range(0.0, 86400.0)
        .shows_default();
    bool read = line.parse(argc, argv);
    if (read && !options.to.empty() && !json && !prometheus)
        read = line.refuse("--to", "goes with --json or --prometheus");
    if (!read) {
        code = line.say();
        return false;
    }
    if (json)
        options.form = Form::json;
    else if (prometheus)
        options.form = Form::prometheus;
    else if (once || options.explain)
        options.form = Form::text;
    return true;
}

}  // namespace flx::top
