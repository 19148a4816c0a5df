/// \file harness.h
/// GoogleTest under mpirun: every rank runs the same tests in the same order. A failure is printed at once by the rank
/// that saw it, with its number; the process of every rank ends non-zero if any rank failed.
///
/// Arguments of every program, besides GoogleTest's: `--hosts=0,0,1` puts rank r on the host of the r-th number
/// (repeated where there are more ranks): ranks of different numbers share no memory.
#pragma once

#include <flx.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/mpi/random.h"

namespace flx::test {

/// In MPI_COMM_WORLD.
int world_rank();
int world_size();
/// Distinct numbers of `--hosts` among the ranks; 1 without it.
int world_hosts();
/// FLX_TEST_FULL=1: everything instead of a selection.
bool full();
/// FLX_TEST_SEED, or a fixed one; the same on all ranks.
uint64_t seed();

/// Whether `status` is success; else a failure with the sentence.
testing::AssertionResult succeeded(flx_status_t status);
/// Whether `condition` holds on all ranks of MPI_COMM_WORLD. Collective.
bool everywhere(bool condition);

/// A communicator that is freed with its scope.
class Comm {
  public:
    Comm() = default;
    explicit Comm(flx_comm_t comm) : comm_(comm) {}
    Comm(Comm &&other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
    Comm &operator=(Comm &&other) noexcept {
        std::swap(comm_, other.comm_);
        return *this;
    }
    ~Comm() {
        if (comm_ != nullptr)
            flx_comm_free(&comm_);
    }
    /// Of MPI_COMM_WORLD. A failure is added to the test; then the result is empty. Collective.
    static Comm world(const flx_config_t *config = nullptr);
    explicit operator bool() const { return comm_ != nullptr; }
    operator flx_comm_t() const { return comm_; }
    [[nodiscard]] int rank() const;
    [[nodiscard]] int size() const;

  private:
    flx_comm_t comm_ = nullptr;
};

/// Settings for Comm::world whose strings live as long as this does.
struct Settings {
    std::string partition, links, algorithm;
    double deadline_s = 0;
    int check = 0;
    int strict = 0;
    [[nodiscard]] flx_config_t config() const;
};

/// Names of links of MPI_COMM_WORLD that exist on every rank, `shm` among them where ranks share memory. Collective.
std::vector<std::string> common_links();
/// Those of them that alone connect all ranks. Collective.
std::vector<std::string> complete_links();

}  // namespace flx::test
