#include "launch/processes.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "comm/tcp/socket.h"
#include "launch/exit_code.h"

extern char** environ;

namespace moesaic {
namespace {

constexpr double kSecondsToFollow = 2;  // of the others, after the first process has failed

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A port for rank 0 that nobody else is given while this lives: bound, but not listened on.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(socket_.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    require<IoError>(::bind(socket_.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
                     "no free port was found for the control channel: {}", std::strerror(errno));
  }
  int number() const { return tcp::port_of(socket_); }

 private:
  tcp::Socket socket_;
};

/// Variables of this process that say which rank of which job it is.
bool is_of_a_launcher(std::string_view variable) {
  static constexpr std::string_view kPrefixes[] = {
      "SLURM_",  "OMPI_", "PMIX_",       "PMI_",        "MPI_LOCAL",         "TORCHELASTIC_",
      "MASTER_", "RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "GROUP_RANK="};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

std::vector<std::string> environment_without_launcher() {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!is_of_a_launcher(*variable)) all.emplace_back(*variable);
  return all;
}

std::vector<std::string> environment_of(int64_t rank, int64_t count, int port, pid_t parent) {
  std::vector<std::string> all = environment_without_launcher();
  const auto add = [&](const char* name, const std::string& value) {
    all.push_back(fmt::format("{}={}", name, value));
  };
  add("RANK", std::to_string(rank));
  add("WORLD_SIZE", std::to_string(count));
  add("LOCAL_RANK", std::to_string(rank));
  add("LOCAL_WORLD_SIZE", std::to_string(count));
  add("MASTER_ADDR", "127.0.0.1");
  add("MASTER_PORT", std::to_string(port - 1));
  add("TORCHELASTIC_RUN_ID", fmt::format("moesaic-{}-{}", parent, port));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// The processes of one run.
class Processes {
 public:
  /// `watched`: signals that this process has blocked, and waits for; `before`: its mask otherwise.
  Processes(const sigset_t& watched, const sigset_t& before) : watched_(watched), before_(before) {}
  ~Processes() {
    kill_all();
    while (running() > 0) collect(0);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void start(std::vector<std::string> words, std::vector<std::string> variables) {
    const auto argv = pointers(words), envp = pointers(variables);
    const pid_t parent = ::getpid(), pid = ::fork();
    require<IoError>(pid >= 0, "process {} cannot be started: {}", children_.size(), std::strerror(errno));
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::setpgid(0, 0);  // Ctrl-C reaches the parent alone, which passes it on
      ::sigprocmask(SIG_SETMASK, &before_, nullptr);
      ::execve("/proc/self/exe", argv.data(), envp.data());
      ::_exit(127);
    }
    children_.push_back({pid});
  }

  JobEnd wait() {
    while (running() > 0) {
      const timespec turn{.tv_sec = 0, .tv_nsec = 200'000'000};
      const int signal = ::sigtimedwait(&watched_, nullptr, &turn);
      if (signal > 0 && signal != SIGCHLD) on_signal(signal);
      collect(WNOHANG);
      if (failed_at_ > 0 && now() - failed_at_ > kSecondsToFollow) kill_all();
    }
    end_.failed = end_.code != 0 && !refused_;
    return end_;
  }

 private:
  struct Child {
    pid_t pid;
    bool running = true;
  };

  int64_t running() const {
    return std::count_if(children_.begin(), children_.end(), [](const Child& c) { return c.running; });
  }
  void kill_all() {
    killing_ = true;
    for (const Child& child : children_)
      if (child.running) ::kill(child.pid, SIGKILL);
  }
  void on_signal(int signal) {
    if (end_.stopped) {
      end_.code = kExitInterrupted;
      weight_ = kKilled;
      return kill_all();
    }
    end_.stopped = true;
    if (children_[0].running) ::kill(children_[0].pid, signal == SIGHUP ? SIGTERM : signal);
  }
  void collect(int options) {
    for (size_t r = 0; r < children_.size(); ++r) {
      int status = 0;
      if (children_[r].running && ::waitpid(children_[r].pid, &status, options) == children_[r].pid) {
        children_[r].running = false;
        on_end(r, status);
      }
    }
  }
  void on_end(size_t child, int status) {
    // A killed process takes longer to end than those that end because of it.
    const bool killed = WIFSIGNALED(status) && !killing_;
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0) return;
    refused_ = refused_ || (!WIFSIGNALED(status) && code != kExitLeftBehind && code != kExitJobFailed);
    if (failed_at_ == 0) failed_at_ = now();
    // Those that follow another's failure leave with kExitJobFailed, some of them before it.
    const int weight = killed ? kKilled : WIFSIGNALED(status) || code == kExitJobFailed ? 1 : 2;
    if (weight <= weight_) return;
    weight_ = weight;
    end_.code = code;
    const std::string who = children_.size() > 1 ? fmt::format("rank {}", child) : "the process";
    end_.what = WIFSIGNALED(status) ? fmt::format("{} was ended by signal {} ({})", who, WTERMSIG(status),
                                                  ::strsignal(WTERMSIG(status)))
                                    : fmt::format("{} ended with exit code {}", who, code);
    if (killed) log_info("{}", end_.what);
  }

  const sigset_t &watched_, &before_;
  std::vector<Child> children_;  // [rank]
  JobEnd end_;
  static constexpr int kKilled = 3;
  int weight_ = 0;  // of end_.code: how much it says about why the job ended
  double failed_at_ = 0;
  bool killing_ = false;  // signals from here on are this process's
  bool refused_ = false;
};

}  // namespace

LocalJob::LocalJob(int64_t ranks, int64_t control_port) : ranks_(ranks), control_port_(control_port) {
  ::sigemptyset(&watched_);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&watched_, signal);
  ::sigprocmask(SIG_BLOCK, &watched_, &before_);
}

LocalJob::~LocalJob() {
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

JobEnd LocalJob::run(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"moesaic"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ReservedPort reserved;
  const int port = control_port_ > 0 ? static_cast<int>(control_port_) : reserved.number();
  Processes processes(watched_, before_);
  if (ranks_ == 0) processes.start(words, environment_without_launcher());
  for (int64_t r = 0; r < ranks_; ++r) processes.start(words, environment_of(r, ranks_, port, ::getpid()));
  return processes.wait();
}

bool LocalJob::pause(double seconds) {
  for (const double end = now() + seconds; now() < end;) {
    const double left = std::max(end - now(), 0.0);
    const timespec time{.tv_sec = static_cast<time_t>(left),
                        .tv_nsec = static_cast<long>((left - std::floor(left)) * 1e9)};
    const int signal = ::sigtimedwait(&watched_, nullptr, &time);
    if (signal > 0 && signal != SIGCHLD) return false;
  }
  return true;
}

int run_processes(int64_t count, int64_t control_port, const std::vector<std::string>& arguments) {
  return LocalJob(count, control_port).run(arguments).code;
}

}  // namespace moesaic
