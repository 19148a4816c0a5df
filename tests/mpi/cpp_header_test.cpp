/// flx.hpp: RAII, spans and exceptions over the calls that other tests check thoroughly.
#include <array>
#include <complex>
#include <cstdio>
#include <flx.hpp>
#include <numeric>
#include <string_view>
#include <vector>

namespace {

int failures = 0;

void expect(bool holds, const char *what) {
    if (holds)
        return;
    std::fprintf(stderr, "wrong: %s\n", what);
    ++failures;
}

template <typename Body>
void expect_error(Body &&body, std::string_view words, const char *what) {
    try {
        body();
    } catch (const flx::error &error) {
        expect(
            error.status() == FLX_ERR_ARGUMENT && std::string_view(error.what()).find(words) != std::string_view::npos,
            what);
        return;
    }
    expect(false, what);
}

struct Particle {
    double position[3];
    int kind;
};

void collectives(const flx::communicator &comm) {
    const int rank = comm.rank();
    const int size = comm.size();
    const auto ranks = static_cast<size_t>(size);
    std::vector<float> numbers(1000, static_cast<float>(rank));
    comm.allreduce(numbers, flx::sum);
    expect(numbers[0] == size * (size - 1) / 2 && numbers[999] == numbers[0], "allreduce in place");
    std::array<uint16_t, 3> in = {1, 2, static_cast<uint16_t>(rank)};
    std::vector<uint16_t> out(3);
    comm.allreduce(in, out, flx::max);
    expect(out[1] == 2 && out[2] == size - 1, "allreduce");
    expect(comm.allreduce(int64_t{1} << 40, flx::min) == int64_t{1} << 40, "allreduce of one value");
    expect(
        comm.allreduce(std::complex<double>(1, -rank), flx::sum) == std::complex<double>(size, -size * (size - 1) / 2),
        "allreduce of a complex number");
    std::vector<uint16_t> at_root(rank == size - 1 ? 3 : 0);
    comm.reduce(in, at_root, flx::sum, size - 1);
    expect(rank != size - 1 || at_root[0] == size, "reduce");
    std::vector<int> blocks(2 * ranks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::array<int, 2> own{};
    comm.reduce_scatter_block(blocks, own, flx::sum);
    expect(own[1] == size * (2 * rank + 1), "reduce_scatter_block");
    std::vector<Particle> cloud(ranks);
    const std::array<Particle, 1> mine = {Particle{{1, 2, 3}, rank}};
    comm.allgather(mine, cloud);
    expect(cloud.back().kind == size - 1 && cloud[0].position[2] == 3, "allgather of structs");
    std::vector<int> back(blocks.size());
    comm.alltoall(blocks, back);
    expect(back[0] == 2 * rank && back[2 * ranks - 1] == 2 * rank + 1, "alltoall");
    Particle from_root = {{}, rank};
    comm.bcast(from_root, size - 1);
    expect(from_root.kind == size - 1, "bcast of a struct");
    const std::vector<size_t> ones(ranks, 1);
    std::vector<size_t> places(ranks);
    std::iota(places.begin(), places.end(), size_t{0});
    std::vector<int> uneven(ranks);
    comm.alltoallv(std::span<const int>(blocks), ones, places, std::span(uneven), ones, places);
    expect(uneven[0] == rank && uneven.back() == rank, "alltoallv");

    // In place, by the address that MPI's rule gives the input.
    std::iota(uneven.begin(), uneven.end(), 100 * rank);
    comm.alltoallv(std::span(uneven), ones, places);
    expect(uneven[0] == rank && uneven.back() == 100 * (size - 1) + rank, "alltoallv in place");
    std::vector<int> same(ranks, rank);
    comm.alltoall(same, same);
    expect(same[0] == 0 && same.back() == size - 1, "alltoall in place");
    std::vector<int> gathered(ranks, -1);
    gathered[static_cast<size_t>(rank)] = rank;
    comm.allgather(std::span(gathered).subspan(static_cast<size_t>(rank), 1), gathered);
    expect(gathered[0] == 0 && gathered.back() == size - 1, "allgather in place");
    std::vector<int> sums(ranks, rank + 1);
    comm.reduce_scatter_block(sums, std::span(sums).first(1), flx::sum);
    expect(sums[0] == size * (size + 1) / 2, "reduce_scatter_block in place");
    std::vector<int> largest(2, rank);
    comm.reduce(largest, largest, flx::max, 0);
    expect(largest[1] == (rank == 0 ? size - 1 : rank), "reduce in place");
    std::array<int, 1> token = {rank};
    std::array<int, 1> got = {-1};
    {
        flx::group group(comm);
        comm.send(token, (rank + 1) % size);
        comm.recv(got, (rank + size - 1) % size);
        group.end();
    }
    expect(got[0] == (rank + size - 1) % size, "send and receive in a group");
    comm.sendrecv(token, (rank + 1) % size, got, (rank + size - 1) % size);
    comm.barrier();

    flx::vector<double> shared(100'000, rank), shared_sums(shared.size());
    comm.allreduce(shared, shared_sums, flx::sum);
    expect(shared_sums == flx::vector<double>(shared.size(), size * (size - 1) / 2), "sum of vectors that ranks map");
    shared.resize(300'000, rank);
    comm.allreduce(shared, flx::max);
    expect(shared == flx::vector<double>(shared.size(), size - 1), "largest, in a vector that has grown");

    std::vector<uint16_t> too_short(2);
    expect_error([&] { comm.allreduce(in, too_short, flx::sum); }, "elements", "sizes that differ");
    expect_error([&] { comm.bcast(from_root, size); }, "root", "a wrong root");
    expect_error([&] { (void)comm.allreduce(std::complex<float>(1), flx::max); }, "complex",
                 "the largest complex number");
}

}  // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    {
        flx::communicator comm(MPI_COMM_WORLD);
        collectives(comm);
        flx::communicator half = comm.split(comm.rank() % 2, 0);
        expect(half.size() == (comm.size() + (comm.rank() + 1) % 2) / 2, "split");
        flx::communicator moved = std::move(half);
        expect(!half && moved, "a communicator moves");
        half = comm.dup();
        collectives(half);
        const flx::communicator none = comm.split(-1, 0);
        expect(!none, "a negative color gives none");
    }
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (all == 0)
        std::puts("right");
    return all == 0 ? 0 : 1;
}
