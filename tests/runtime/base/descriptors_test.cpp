#include "runtime/base/descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace flx {
namespace {

/// What a forked child finds: the exit code of `look` there.
template <typename Look>
int in_child(Look &&look) {
    const pid_t child = fork();
    if (child == 0)
        _exit(look());
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OwnDescriptor, IsClosedInForkedChildren) {
    OwnDescriptor first, second, third;
    first.take([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
    second.take([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
    const int number = second.get();
    ASSERT_GE(number, 0);
    second.close();
    EXPECT_EQ(second.get(), -1);
    EXPECT_EQ(fcntl(number, F_GETFD), -1);
    const int kept = open("/dev/null", O_RDONLY | O_CLOEXEC);  // most likely with the same number
    const int own = first.get();
    EXPECT_EQ(in_child([&] {
                  const bool gone = first.get() == -1 && second.get() == -1 && third.get() == -1 &&
                                    fcntl(own, F_GETFD) == -1 && fcntl(kept, F_GETFD) != -1;
                  third.take([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });  // it may have its own
                  return gone && third.get() >= 0 ? 0 : 1;
              }),
              0);
    EXPECT_NE(fcntl(own, F_GETFD), -1) << "the parent's is as it was";
    close(kept);
}

TEST(OwnDescriptor, MayGoInAnyOrder) {
    auto a = std::make_unique<OwnDescriptor>(), b = std::make_unique<OwnDescriptor>(),
         c = std::make_unique<OwnDescriptor>();
    for (const auto &each : {&a, &b, &c})
        (*each)->take([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
    b.reset();
    const int left = a->get();
    c.reset();
    EXPECT_EQ(in_child([&] { return fcntl(left, F_GETFD) == -1 ? 0 : 1; }), 0);
    EXPECT_NE(fcntl(left, F_GETFD), -1);
}

/// Programs that close all that is open, as daemons do, get its number for a file of their own.
TEST(OwnDescriptor, DoesNotCloseWhatTheProgramOpenedInItsPlace) {
    const auto null = [] { return open("/dev/null", O_RDONLY | O_CLOEXEC); };
    auto own = std::make_unique<OwnDescriptor>();
    own->take(null);
    const int number = own->get();
    close(number);
    const int other = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    if (other != number) {
        close(other);
        GTEST_SKIP() << "skipped: another thread got the number";
    }
    EXPECT_EQ(in_child([&] { return fcntl(number, F_GETFD) != -1 ? 0 : 1; }), 0);
    own.reset();
    EXPECT_NE(fcntl(number, F_GETFD), -1);
    close(number);
}

TEST(OwnDescriptor, KeepsTheErrorOfOpening) {
    OwnDescriptor none;
    none.take([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); });
    none.take([] { return open("/nowhere/at/all", O_RDONLY | O_CLOEXEC); });
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(none.get(), -1);
}

}  // namespace
}  // namespace flx
