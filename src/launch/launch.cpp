#include "launch/launch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/mpi/mpi.h"
#include "comm/threads/thread_world.h"
#include "launch/exit_code.h"
#include "launch/process_rank.h"
#include "launch/rank_variables.h"

namespace moesaic {
namespace {

constexpr std::chrono::seconds kTimeToUnwind{2};  // of a rank that is a thread, after an abort
constexpr int64_t kMaxStreamsOfGpu = 32;          // CUDA_DEVICE_MAX_CONNECTIONS
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kPoison = true;  // builds that look for mistakes fill memory that holds nothing with NaN
#else
constexpr bool kPoison = false;
#endif

/// Speaks for all ranks of a job that is only imagined.
class NullControl : public Control {
 public:
  NullControl(int64_t rank, int64_t size) : rank_(rank), size_(size) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  void set_step(int64_t) override {}
  void set_operation(const std::string&) override {}
  void set_time_limit(double) override {}
  void set_waiting(const std::string&) override {}
  void abort(const std::string& message) override { throw CommError(message); }
  void check() const override {}

 protected:
  std::vector<std::string> all_gather_at(const std::string&, const std::string& mine) override {
    return std::vector<std::string>(static_cast<size_t>(size_), mine);
  }

 private:
  int64_t rank_, size_;
};

/// The first failure of any rank.
class FirstFailure {
 public:
  void set(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  std::exception_ptr get() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

/// Runs one rank's work; a failure ends the others.
void run_rank(ThreadWorld& world, const RunConfig& run, int64_t r, const std::function<void(Rank&)>& work,
              FirstFailure& failure) {
  try {
    Rank rank{.rank = r,
              .world_size = world.size(),
              .control = world.control(r),
              .device = make_device(run, r, {.index = r, .count = world.size()}),
              .communicator = [&](const std::vector<int64_t>& ranks) {
                return world.communicator(
                    ranks, r, run.device == DeviceKind::cuda ? make_cuda_mover() : make_cpu_mover());
              }};
    rank.device->set_status([&](const std::string& operation) { world.set_operation(r, operation); });
    work(rank);
    world.set_operation(r, "end of its work");
    world.set_waiting(r, kWaitsForEnd);
  } catch (const CommError& error) {
    failure.set(std::current_exception());
    world.abort(error.what());
  } catch (const Error& error) {
    failure.set(std::current_exception());
    world.abort(fmt::format("{} failed: {}", world.describe(r), error.what()));
  } catch (const std::exception& error) {
    const std::string message = fmt::format("{} failed: {}", world.describe(r), error.what());
    failure.set(std::make_exception_ptr(CommError(message)));
    world.abort(message);
  }
}

}  // namespace

namespace {

uint64_t chaos_seed(const RunConfig& run, int64_t rank) {
  return run.chaos_seed * 1000003u + static_cast<uint64_t>(rank) + 1;
}

/// Neighbouring ranks share a GPU when there are more ranks than GPUs.
std::unique_ptr<Device> make_gpu_rank(const RunConfig& run, int64_t rank, const Share& share) {
  const int64_t gpus = num_cuda_devices();
  if (gpus == 0) return make_cuda_device({});  // which says why there is none
  const int64_t sharing = ceil_div(share.count, gpus), most = kMaxStreamsOfGpu / kNumStreams;
  require<ConfigError>(sharing <= most,
                       "{} ranks on {} GPUs: {} ranks would share a GPU, at most {} can (each has {} "
                       "streams, a GPU runs {} side by side)",
                       share.count, gpus, sharing, most, kNumStreams, kMaxStreamsOfGpu);
  const int64_t gpu = share.count <= gpus ? share.index : share.index * gpus / share.count;
  return make_cuda_device({.gpu = static_cast<int>(gpu),
                           .delay_seed = run.replay == ReplayMode::chaos ? chaos_seed(run, rank) : 0});
}

}  // namespace

std::unique_ptr<Device> make_device(const RunConfig& run, int64_t rank, const Share& share) {
  if (run.device == DeviceKind::null) return make_null_device();
  if (run.device == DeviceKind::cuda) return make_gpu_rank(run, rank, share);
  require<ConfigError>(run.device == DeviceKind::cpu,
                       "the device sim is not built yet; set run.device to cpu or cuda");
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const int64_t threads = run.threads > 0 ? run.threads : std::max<int64_t>(1, cores / share.count);
  return make_cpu_device({.mode = run.replay,
                          .chaos_seed = chaos_seed(run, rank),
                          .poison = kPoison,
                          .num_threads = static_cast<int>(threads)});
}

namespace {

void run_threads(const RunConfig& run, int64_t world_size, const std::function<void(Rank&)>& work) {
  // Shared with the threads, so that a rank that is left behind still has them.
  struct Job {
    Job(int64_t size, double timeout) : world(size, timeout) {}
    ThreadWorld world;
    FirstFailure failure;
    std::atomic<int64_t> ended{0};
  };
  auto job = std::make_shared<Job>(world_size, std::max(run.join_timeout, run.comm_timeout));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world_size; ++r)
    threads.emplace_back([job, &run, &work, r, world_size] {
      if (world_size > 1) set_log_tag(fmt::format("rank {}", r));
      run_rank(job->world, run, r, work, job->failure);
      ++job->ended;
    });
  std::optional<std::chrono::steady_clock::time_point> aborted_at;
  while (job->ended < world_size) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    job->world.watch();
    if (!job->world.aborted()) continue;
    const auto now = std::chrono::steady_clock::now();
    if (!aborted_at) aborted_at = now;
    if (now - *aborted_at < kTimeToUnwind) continue;
    log_line(job->world.message());
    log_line("some ranks did not end after that; leaving them behind");
    std::_Exit(kExitLeftBehind);
  }
  for (std::thread& thread : threads) thread.join();
  if (const std::exception_ptr failure = job->failure.get()) std::rethrow_exception(failure);
}

}  // namespace

void run_ranks(const RunConfig& run, int64_t world_size, const std::function<void(Rank&)>& work,
               const std::string& identity) {
  if (const auto place = find_rank(run, process_environment))
    run_process_rank(run, *place, world_size, work, identity);
  else
    run_threads(run, world_size, work);
}

void leave_launcher() {
  mpi::end();
}

bool speaks_for_job(const RunConfig& run) {
  const auto place = find_rank(run, process_environment);
  return !place || place->rank == 0;
}

void run_null_rank(int64_t r, int64_t world_size, const std::function<void(Rank&)>& work) {
  NullControl control(r, world_size);
  Rank rank{.rank = r,
            .world_size = world_size,
            .control = control,
            .device = make_null_device(),
            .communicator = [r](const std::vector<int64_t>& ranks) {
              const auto at = std::find(ranks.begin(), ranks.end(), r);
              return make_null_communicator(at - ranks.begin(), static_cast<int64_t>(ranks.size()));
            }};
  work(rank);
}

}  // namespace moesaic
