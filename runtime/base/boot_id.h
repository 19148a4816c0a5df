/// \file boot_id.h
/// Which running kernel this is: what ranks of one host have in common.
#pragma once

#include <string>

namespace flx {

/// Equal texts: the same kernel since the same boot. Where the kernel's own word cannot be read (a container without
/// /proc/sys), names that administrators keep apart stand for it, so that two hosts are never taken for one.
std::string boot_id(const char *kernels_word = "/proc/sys/kernel/random/boot_id");

}  // namespace flx
