/// Ranks of which one dies, is stopped or is late while all run allreduces in a loop, or messages. death_test.py starts
/// them and judges by the lines that they print, since mpirun's exit code says nothing of survivors.
///
///     death_ranks EVENT VICTIM AFTER_MS BYTES HOSTS WHAT
///
/// WHAT: `allreduce`; `ring` (each rank sends to the next and receives from the one before); `to`, `from` (all others
/// send to the victim, or receive from it).
/// EVENT: `kill` (SIGKILL), `orphan` (the same, but a child that the victim has forked lives on), `forks` (the victim
/// forks a child that ends, as a program does), `stop` (SIGSTOP; SIGCONT once another rank has its error), `pause`
/// (SIGSTOP, SIGCONT after 700 ms), `late` (the victim sleeps for 2.5 s between two calls). HOSTS: into how many hosts
/// FLX is to split the ranks. All are on one machine, so their clocks agree.
#include <flx.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPause(700);
constexpr milliseconds kLate(2500);
/// Runs without an error end so long after the event.
constexpr milliseconds kQuiet(1500);

double seconds() {
    return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count();
}

/// One line, in one write, so that mpirun does not mix lines.
void say(const std::string &text) {
    const std::string line = text + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0)
        _exit(3);
}

struct Setting {
    std::string event;
    int victim = 0;
    milliseconds after{0};
    size_t count = 0;
    int hosts = 1;
    int rank = 0;
    int size = 1;
    std::string what;
    std::vector<long> pids;
};

/// Whether the victim itself does it; else the rank after it.
bool by_victim(const std::string &event) {
    return event == "kill" || event == "orphan" || event == "forks";
}

/// A child that does nothing for so long that everybody has given up by then, and keeps nobody waiting.
void leave_orphan() {
    constexpr int kSeconds = 6;
    if (fork() != 0)
        return;
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        close(fd);
    alarm(kSeconds);
    for (;;)
        pause();
}

/// Done by the victim itself or the rank after it.
void cause(const Setting &setting) {
    std::this_thread::sleep_for(setting.after);
    const auto pid = static_cast<pid_t>(setting.pids[setting.victim]);
    char text[64];
    std::snprintf(text, sizeof text, "event\t%.6f", seconds());
    say(text);
    if (setting.event == "orphan")
        leave_orphan();
    if (setting.event == "forks") {
        if (fork() == 0)
            exit(0);  // with all that runs at the end of a program
        return;
    }
    kill(pid, by_victim(setting.event) ? SIGKILL : SIGSTOP);
    if (setting.event == "pause") {
        std::this_thread::sleep_for(kPause);
        kill(pid, SIGCONT);
    }
}

/// Messages of a turn, one after the other, so that most of the time one is under way. Each says who sent it.
flx_status_t exchange(const Setting &setting, flx_comm_t comm, std::vector<float> &sent, std::vector<float> &received,
                      long &wrong) {
    constexpr int kMessages = 8;
    const size_t count = setting.count;
    sent.assign(count, static_cast<float>(setting.rank + 1));
    received.resize(count);
    const auto check = [&](int source) {
        for (const float value : received)
            wrong += value != static_cast<float>(source + 1);
    };
    const bool ring = setting.what == "ring";
    const bool inwards = setting.what == "to";
    for (int message = 0; message < kMessages; ++message) {
        if (ring) {
            const int next = (setting.rank + 1) % setting.size;
            const int previous = (setting.rank + setting.size - 1) % setting.size;
            const flx_status_t status =
                flx_sendrecv(sent.data(), received.data(), count, count, FLX_F32, next, previous, comm);
            if (status != FLX_SUCCESS)
                return status;
            check(previous);
            continue;
        }
        for (int peer = 0; peer < setting.size; ++peer) {
            if (peer == setting.victim || (setting.rank != peer && setting.rank != setting.victim))
                continue;
            const bool sends = (setting.rank == setting.victim) != inwards;
            const int other = setting.rank == setting.victim ? peer : setting.victim;
            const flx_status_t status = sends ? flx_send(sent.data(), count, FLX_F32, other, comm)
                                              : flx_recv(received.data(), count, FLX_F32, other, comm);
            if (status != FLX_SUCCESS)
                return status;
            if (!sends)
                check(other);
        }
    }
    return FLX_SUCCESS;
}

/// Allreduces or messages until an error, or until the first rank finds that enough time has passed.
flx_status_t loop(const Setting &setting, flx_comm_t comm, long &wrong) {
    const bool shared = setting.what == "shared";
    std::vector<float> own(shared ? 0 : setting.count);
    void *mapped = nullptr;  // the process ends with it, one way or the other
    if (shared && flx_malloc(setting.count * sizeof(float), &mapped) != FLX_SUCCESS)
        return FLX_ERR_SYSTEM;
    float *data = shared ? static_cast<float *>(mapped) : own.data();
    std::vector<float> sent, received;
    const float expected = static_cast<float>(setting.size * (setting.size + 1) / 2);
    const auto end = steady_clock::now() + setting.after + kQuiet + (setting.event == "late" ? kLate : milliseconds(0));
    bool slept = setting.event != "late" || setting.rank != setting.victim;
    const auto bed_time = steady_clock::now() + setting.after;
    for (;;) {
        if (!slept && steady_clock::now() >= bed_time) {
            char text[64];
            std::snprintf(text, sizeof text, "event\t%.6f", seconds());
            say(text);
            std::this_thread::sleep_for(kLate);
            slept = true;
        }
        flx_status_t status = FLX_SUCCESS;
        if (setting.what == "allreduce" || shared) {
            std::fill_n(data, setting.count, static_cast<float>(setting.rank + 1));
            status = flx_allreduce(FLX_IN_PLACE, data, setting.count, FLX_F32, FLX_SUM, comm);
            for (size_t i = 0; i < setting.count; ++i)
                wrong += status == FLX_SUCCESS && data[i] != expected;
        } else {
            status = exchange(setting, comm, sent, received, wrong);
        }
        if (status != FLX_SUCCESS)
            return status;
        int32_t done = setting.rank == 0 && steady_clock::now() > end ? 1 : 0;
        status = flx_allreduce(FLX_IN_PLACE, &done, 1, FLX_INT32, FLX_MAX, comm);
        if (status != FLX_SUCCESS || done != 0)
            return status;
    }
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 7)
        return 2;
    MPI_Init(&argc, &argv);
    Setting setting;
    setting.event = argv[1];
    setting.victim = std::atoi(argv[2]);
    setting.after = milliseconds(std::atoi(argv[3]));
    setting.count = static_cast<size_t>(std::atol(argv[4])) / sizeof(float);
    setting.hosts = std::atoi(argv[5]);
    setting.what = argv[6];
    MPI_Comm_rank(MPI_COMM_WORLD, &setting.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &setting.size);
    if (setting.hosts > 1)
        setenv("FLX_HOST_ID", ("host" + std::to_string(setting.rank * setting.hosts / setting.size)).c_str(), 1);
    const long pid = getpid();
    setting.pids.resize(setting.size);
    MPI_Allgather(&pid, 1, MPI_LONG, setting.pids.data(), 1, MPI_LONG, MPI_COMM_WORLD);

    flx_comm_t comm = nullptr;
    if (flx_comm_create(MPI_COMM_WORLD, nullptr, &comm) != FLX_SUCCESS) {
        say(std::string("cannot make a communicator: ") + flx_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const int actor = by_victim(setting.event) ? setting.victim : (setting.victim + 1) % setting.size;
    std::thread act;
    if (setting.rank == actor && setting.event != "late")
        act = std::thread([&] { cause(setting); });

    long wrong = 0;
    const flx_status_t status = loop(setting, comm, wrong);
    const double when = seconds();
    const std::string sentence = status == FLX_SUCCESS ? "" : flx_last_error();
    const flx_status_t later = status == FLX_SUCCESS ? FLX_SUCCESS : flx_barrier(comm);
    const flx_status_t freed = flx_comm_free(&comm);
    char head[160];
    std::snprintf(head, sizeof head, "verdict\t%d\t%d\t%.6f\t%d\t%d\t%.3f\t%ld\t", setting.rank, status, when, later,
                  freed, seconds() - when, wrong);
    say(head + sentence);
    if (act.joinable())
        act.join();
    if (status == FLX_SUCCESS) {
        MPI_Finalize();
        return 0;
    }
    if (setting.event == "stop" && setting.rank == actor) {
        std::this_thread::sleep_for(milliseconds(300));
        kill(static_cast<pid_t>(setting.pids[setting.victim]), SIGCONT);
    }
    // MPI cannot finalize with a rank missing. mpirun ends the others once one leaves so: the driver says when.
    pause();
}
