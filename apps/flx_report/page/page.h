/// \file page.h
/// The page: one HTML file that needs no other. Pure functions, texts from data.
#pragma once

#include <string>
#include <vector>

#include "apps/flx_report/data/bench.h"
#include "apps/flx_report/data/summary.h"

namespace flx::report {

/// The whole file. `trace` is the trace's name.
[[nodiscard]] std::string page_of(const Summary &summary, const std::vector<Bench> &benches, const std::string &trace);

/// The same of results alone, without a trace. `origin` says where they are from.
[[nodiscard]] std::string page_of_results(const std::vector<Bench> &benches, const std::string &origin);

// Its parts, each a section with its heading.

/// What the run was, and what stands out.
[[nodiscard]] std::string overview_part(const Summary &summary);
/// What was called, in which ways, and what it took.
[[nodiscard]] std::string calls_part(const Summary &summary);
/// Ranks, when they come, and who waits for whom.
[[nodiscard]] std::string ranks_part(const Summary &summary);
/// What links carried, over time.
[[nodiscard]] std::string links_part(const Summary &summary);
/// Hosts, their ranks and the links between them, drawn.
[[nodiscard]] std::string machine_part(const Summary &summary);
/// FLX beside its peer and the links' ceiling. Null: there is no trace, and so no ceiling.
[[nodiscard]] std::string bench_part(const Summary *summary, const std::vector<Bench> &benches);
/// What its heading is: whether there is a peer.
[[nodiscard]] std::string bench_title(const std::vector<Bench> &benches);

/// How the page names calls of a class: `allreduce, does not block`.
[[nodiscard]] std::string class_name(const CallClass &of);
/// When something was, since the first event of the trace.
[[nodiscard]] std::string when_text(const Summary &summary, double at_us);
/// `3 (n1)`; with one host `3`.
[[nodiscard]] std::string rank_text(const Summary &summary, int64_t rank);
/// The distinct hosts of ranks and links, in order.
[[nodiscard]] std::vector<std::string> hosts_of(const Summary &summary);

}  // namespace flx::report
