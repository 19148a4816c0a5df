/// \file resend.h
/// Private to the verifier: whether every chunk's source is intact for as long as the chunk may have to be sent again,
/// for all interleavings at once.
///
/// One cell index is looked at (a step touches no other cell of its blocks), and these events: a send's post and its
/// end, and the moment at which any other step does the cell. What surely happens before what:
/// - a step's end before each step that depends on it;
/// - the post of a send before its receiver's use of the cell, and before the send's own end.
/// That the receiver used a cell before its send ended holds only where the chunk was not copied, so it is never relied
/// on, except for the send in question: if that one was copied, it is the copy that is sent again.
///
/// A write W to the source of a send S, used by the receiver's step R, is safe if
/// - W happens before S is posted: S sends what W wrote; or
/// - W happens after S has ended: S was acknowledged, or is sent again from a copy; or
/// - W happens after R: a chunk sent again carries other bytes, which the receiver drops as those of a cell that it
/// has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/simulation.h"

namespace flx::algorithms {

/// `long_blocks`: how many of the first blocks have the cell that is looked at (all, or those that are one longer than
/// the rest). Empty, or a sentence that names the send and the write.
std::string check_resend(const std::vector<Schedule> &schedules, const std::vector<std::vector<Match>> &matches,
                         Collective collective, bool in_place, uint32_t long_blocks, ResendReasons &reasons);

}  // namespace flx::algorithms
