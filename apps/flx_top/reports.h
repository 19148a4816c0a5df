/// \file reports.h
/// The view for machines.
#pragma once

#include <string>

#include "apps/flx_top/view.h"
#include "runtime/base/status.h"

namespace flx::top {

/// Members are those of View, with its names; `findings` have `trouble`, `rank`, `pid`, `communicator`, `waiting`,
/// `sentence` and `advice`. `pid` is null where a process of a container has no number here that is known.
std::string json_of(const View &view, const std::vector<record::ProcessSeen> &now);
/// Prometheus' text format: flx_calls_total, flx_waits_seconds, flx_link_sent_bytes.
std::string prometheus_of(const View &view, const std::vector<record::ProcessSeen> &now);

/// Replaces the file as a whole, so that no reader sees a part of it. FLX_ERR_SYSTEM.
Status replace(const std::string &file, const std::string &text);

}  // namespace flx::top
