/// \file mistake.h
/// Mistakes that prepare.py has put into the copies of sources, to see whether the proof finds them.
#pragma once

namespace flx::interleave {

inline int the_mistake = 0;  ///< 0: none

inline bool mistake(int number) {
    return the_mistake == number;
}

}  // namespace flx::interleave
