#include "apps/flx_trainer/training.h"

#include <fmt/format.h>
#include <fmt/os.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>

#include "apps/common/progress.h"
#include "apps/flx_trainer/batches.h"
#include "apps/flx_trainer/model.h"

namespace flx::trainer {
namespace {

// Inputs and classes are added at the ends.
constexpr std::size_t kHidden[] = {256, 128};
constexpr double kWarmUp = 0.05;  // part of all steps over which the learning rate rises

const char *name_of(Backend backend) {
    return backend == Backend::flx ? "FLX" : "MPI";
}

Model make_model(const Options &options, const Dataset &dataset) {
    return Model({dataset.train.pixels, kHidden[0], kHidden[1], kClasses}, options.seed);
}

// Basic arithmetic only: a library function could round differently on another host, and weights would drift apart.
float rate_at(std::size_t step, std::size_t steps, double highest) {
    const double rise = std::max(kWarmUp * static_cast<double>(steps), 1.0);
    const double done = static_cast<double>(step);
    const double rising = (done + 1.0) / rise;
    const double falling = (static_cast<double>(steps) - done) / (static_cast<double>(steps) - rise + 1.0);
    return static_cast<float>(highest * std::min({rising, falling, 1.0}));
}

std::uint64_t hash_of(std::span<const float> weights) {
    // FNV-1a over 32-bit words, with a final mix so that every bit of the hash depends on every weight.
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const float weight : weights) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &weight, sizeof(bits));
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    hash = (hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

// A model with its way of adding gradients, and what this rank measured in the current epoch.
struct Replica {
    Model model;
    Exchange exchange;
    std::vector<double> losses;  // of each step, summed over this rank's samples
    std::vector<double> reducing_us;
    std::vector<double> waiting_us;
};

// One line a step, on rank 0: what the first model's exchange took, and what each of this rank's links sent for it.
class IterationLog {
  public:
    IterationLog(fmt::ostream file, flx_comm_t comm) : file_(std::move(file)), comm_(comm), start_(MPI_Wtime()) {
        file_.print("iteration,seconds,us,loss");
        if (comm_ != nullptr) {
            last_ = local_link_bytes(comm_);
            for (const LinkBytes &link : last_) {
                file_.print(",{0}_share,{0}_bytes", link.name);
            }
        }
        file_.print("\n");
    }

    // Right after the step's exchange.
    void sample() {
        Row row{MPI_Wtime() - start_, {}};
        if (comm_ != nullptr) {
            const std::vector<LinkBytes> now = local_link_bytes(comm_);
            for (std::size_t i = 0; i < last_.size(); ++i) {
                row.bytes.push_back(i < now.size() ? now[i].bytes - last_[i].bytes : 0);
            }
            if (now.size() == last_.size()) {
                last_ = now;
            }
        }
        rows_.push_back(std::move(row));
    }

    // At an epoch's end, when ranks have told each other losses and times.
    void write(std::span<const double> us, std::span<const double> losses) {
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            file_.print("{},{:.6f},{:.1f},{:.6f}", written_++, rows_[i].seconds, us[i], losses[i]);
            std::uint64_t sum = 0;
            for (const std::uint64_t bytes : rows_[i].bytes) {
                sum += bytes;
            }
            for (const std::uint64_t bytes : rows_[i].bytes) {
                file_.print(",{:.4f},{}", sum > 0 ? static_cast<double>(bytes) / static_cast<double>(sum) : 0.0, bytes);
            }
            file_.print("\n");
        }
        file_.flush();
        rows_.clear();
    }

  private:
    struct Row {
        double seconds;
        std::vector<std::uint64_t> bytes;
    };

    fmt::ostream file_;
    flx_comm_t comm_;
    double start_;
    std::vector<LinkBytes> last_;
    std::vector<Row> rows_;
    std::size_t written_ = 0;
};

class Trainer {
  public:
    Trainer(const Options &options, const Dataset &dataset, MPI_Comm mpi_comm, flx_comm_t flx_comm, Outcome &outcome)
        : options_(options),
          dataset_(dataset),
          mpi_comm_(mpi_comm),
          flx_comm_(flx_comm),
          outcome_(outcome),
          batches_(dataset.train, options.limit, options.batch, options.seed),
          total_steps_(options.epochs * batches_.steps()) {
        MPI_Comm_rank(mpi_comm_, &rank_);
        MPI_Comm_size(mpi_comm_, &ranks_);
        outcome_.steps_per_epoch = batches_.steps();
    }

    void train(IterationLog *log) {
        for (const Backend backend : options_.backends) {
            Model model = make_model(options_, dataset_);
            const auto buckets = plan_buckets(model.gradients().size(), options_.bucket_bytes);
            outcome_.parameters = model.parameters().size();
            outcome_.buckets = buckets.size();
            replicas_.push_back({std::move(model), Exchange(backend, mpi_comm_, flx_comm_, buckets), {}, {}, {}});
            outcome_.runs.emplace_back().backend = backend;
        }
        const double start = MPI_Wtime();
        apps::Progress progress("training", total_steps_, rank_ == 0);
        for (std::size_t epoch = 0; epoch < options_.epochs; ++epoch) {
            batches_.begin_epoch(epoch);
            for (std::size_t step = 0; step < batches_.steps(); ++step) {
                step_all(epoch, step, log);
                progress.update(epoch * batches_.steps() + step + 1);
            }
            progress.clear();
            end_epoch(epoch, log);
        }
        progress.finish();
        outcome_.training_s = MPI_Wtime() - start;
        for (std::size_t i = 0; i < replicas_.size(); ++i) {
            assess(replicas_[i].model, outcome_.runs[i]);
        }
        if (flx_comm_ != nullptr) {
            outcome_.links = total_link_bytes(flx_comm_, mpi_comm_);
        }
    }

    // Rank 0 alone over whole batches; the others sleep, so that they take no core from it.
    void repeat_alone() {
        const std::size_t epochs = std::min(options_.reference_epochs, options_.epochs);
        const double start = MPI_Wtime();
        if (rank_ == 0) {
            Model model = make_model(options_, dataset_);
            Rows rows;
            apps::Progress progress("one rank", epochs * batches_.steps());
            for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
                batches_.begin_epoch(epoch);
                double sum = 0.0;
                for (std::size_t step = 0; step < batches_.steps(); ++step) {
                    batches_.load(step, 0, 1, rows);
                    const double loss =
                        model.compute_gradients(rows.inputs.data(), rows.labels.data(), rows.count, rows.count);
                    model.descend(rate(epoch, step), static_cast<float>(options_.momentum));
                    sum += loss;
                    outcome_.reference.step_losses.push_back(loss / static_cast<double>(rows.count));
                    progress.update(epoch * batches_.steps() + step + 1);
                }
                outcome_.reference.epoch_losses.push_back(sum / static_cast<double>(batches_.samples()));
            }
        }
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Ibarrier(mpi_comm_, &request);
        for (int done = 0; done == 0;) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (done == 0) {
                usleep(1000);
            }
        }
        outcome_.reference_s = MPI_Wtime() - start;
    }

  private:
    float rate(std::size_t epoch, std::size_t step) const {
        return rate_at(epoch * batches_.steps() + step, total_steps_, options_.rate);
    }

    void step_all(std::size_t epoch, std::size_t step, IterationLog *log) {
        batches_.load(step, static_cast<std::size_t>(rank_), static_cast<std::size_t>(ranks_), rows_);
        for (std::size_t i = 0; i < replicas_.size(); ++i) {
            Replica &replica = replicas_[i];
            replica.losses.push_back(replica.model.compute_gradients(rows_.inputs.data(), rows_.labels.data(),
                                                                     rows_.count, batches_.size(step)));
            // The first model has the fault, be it FLX's or, alone, MPI's.
            const Corruption fault = i == 0 ? options_.corruption : Corruption{};
            const ExchangeTime time =
                replica.exchange.reduce(replica.model.gradients(), epoch * batches_.steps() + step, fault);
            replica.reducing_us.push_back(time.reducing_us);
            replica.waiting_us.push_back(time.waiting_us);
            if (i == 0 && log != nullptr) {
                log->sample();
            }
            replica.model.descend(rate(epoch, step), static_cast<float>(options_.momentum));
        }
    }

    void end_epoch(std::size_t epoch, IterationLog *log) {
        std::string line = fmt::format("epoch {}/{}", epoch + 1, options_.epochs);
        const int steps = static_cast<int>(batches_.steps());
        for (std::size_t i = 0; i < replicas_.size(); ++i) {
            Replica &replica = replicas_[i];
            Run &run = outcome_.runs[i];
            MPI_Allreduce(MPI_IN_PLACE, replica.losses.data(), steps, MPI_DOUBLE, MPI_SUM, mpi_comm_);
            MPI_Allreduce(MPI_IN_PLACE, replica.reducing_us.data(), steps, MPI_DOUBLE, MPI_MAX, mpi_comm_);
            MPI_Allreduce(MPI_IN_PLACE, replica.waiting_us.data(), steps, MPI_DOUBLE, MPI_SUM, mpi_comm_);
            double loss = 0.0;
            double reducing_us = 0.0;
            double waiting_us = 0.0;
            for (std::size_t step = 0; step < batches_.steps(); ++step) {
                loss += replica.losses[step];
                reducing_us += replica.reducing_us[step];
                waiting_us += replica.waiting_us[step] / ranks_;
                run.step_losses.push_back(replica.losses[step] / static_cast<double>(batches_.size(step)));
            }
            run.epoch_losses.push_back(loss / static_cast<double>(batches_.samples()));
            run.reducing_s += reducing_us * 1e-6;
            run.waiting_s += waiting_us * 1e-6;
            line += fmt::format("  {}: loss {:.4f}, communication {:.1f} ms", name_of(run.backend),
                                run.epoch_losses.back(), reducing_us * 1e-3);
            if (i == 0 && log != nullptr) {
                log->write(replica.reducing_us, std::span(run.step_losses).last(batches_.steps()));
            }
            compare_weights(replica.model, epoch, run);
            replica.losses.clear();
            replica.reducing_us.clear();
            replica.waiting_us.clear();
        }
        if (rank_ == 0) {
            fmt::print("{}\n", line);
            std::fflush(stdout);
        }
    }

    // Test accuracy, each rank on its part.
    void assess(Model &model, Run &run) {
        constexpr std::size_t kRowsAtOnce = 512;
        const Samples &test = dataset_.test;
        const Range part = part_of(test.count, static_cast<std::size_t>(rank_), static_cast<std::size_t>(ranks_));
        std::uint64_t correct = 0;
        for (std::size_t begin = part.begin; begin < part.end; begin += kRowsAtOnce) {
            convert(test, nullptr, {begin, std::min(begin + kRowsAtOnce, part.end)}, rows_);
            correct += model.count_correct(rows_.inputs.data(), rows_.labels.data(), rows_.count);
        }
        MPI_Allreduce(MPI_IN_PLACE, &correct, 1, MPI_UINT64_T, MPI_SUM, mpi_comm_);
        run.accuracy = 100.0 * static_cast<double>(correct) / static_cast<double>(test.count);
    }

    // Weights that once differ may look alike again (all of them NaN), so the first difference is kept.
    void compare_weights(const Model &model, std::size_t epoch, Run &run) {
        const std::span<const float> weights = model.parameters();
        const auto is_finite = [](float weight) { return std::isfinite(weight); };
        int finite = std::all_of(weights.begin(), weights.end(), is_finite) ? 1 : 0;
        MPI_Allreduce(MPI_IN_PLACE, &finite, 1, MPI_INT, MPI_MIN, mpi_comm_);
        run.finite = run.finite && finite == 1;
        const auto &known = run.hashes;
        if (std::adjacent_find(known.begin(), known.end(), std::not_equal_to<>()) != known.end()) {
            return;
        }
        const std::uint64_t hash = hash_of(weights);
        run.hashes.resize(static_cast<std::size_t>(ranks_));
        MPI_Allgather(&hash, 1, MPI_UINT64_T, run.hashes.data(), 1, MPI_UINT64_T, mpi_comm_);
        run.hashes_epoch = epoch;
    }

    const Options &options_;
    const Dataset &dataset_;
    MPI_Comm mpi_comm_;
    flx_comm_t flx_comm_;
    Outcome &outcome_;
    Batches batches_;
    std::size_t total_steps_;
    int rank_ = 0;
    int ranks_ = 1;
    std::vector<Replica> replicas_;
    Rows rows_;
};

}  // namespace

bool train(const Options &options, const Dataset &dataset, MPI_Comm mpi_comm, flx_comm_t flx_comm, Outcome &outcome,
           std::string &error) {
    int rank = 0;
    MPI_Comm_rank(mpi_comm, &rank);
    std::unique_ptr<IterationLog> log;
    if (rank == 0 && !options.iterations.empty()) {
        try {
            log = std::make_unique<IterationLog>(fmt::output_file(options.iterations), flx_comm);
        } catch (const std::system_error &problem) {
            error = fmt::format("{} cannot be written: {}.", options.iterations, problem.code().message());
        }
    }
    int good = error.empty() ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, mpi_comm);
    if (good == 0) {
        return false;
    }
    Trainer trainer(options, dataset, mpi_comm, flx_comm, outcome);
    trainer.train(log.get());
    trainer.repeat_alone();
    return true;
}

}  // namespace flx::trainer
