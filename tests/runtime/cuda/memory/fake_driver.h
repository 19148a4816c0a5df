/// \file fake_driver.h
/// A libcuda.so.1 that counts what it is asked. Linked into a test, it is the process's driver.
#pragma once

namespace flx::test {

struct FakeDriver {
    bool initialised = false;
    int asked_for_context = 0;
    int asked_for_more = 0;  ///< initialisation, versions, other functions
};
FakeDriver &fake_driver();

}  // namespace flx::test
