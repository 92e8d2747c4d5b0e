#include "launch/processes.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "comm/tcp/socket.h"

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

std::vector<std::string> environment_of(int64_t rank, int64_t count, int port, pid_t parent) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!is_of_a_launcher(*variable)) all.emplace_back(*variable);
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

class Processes {
 public:
  Processes(int64_t count, int port, const std::vector<std::string>& arguments) {
    // Signals and ends of children are waited for, one at a time.
    ::sigemptyset(&watched_);
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&watched_, signal);
    ::sigprocmask(SIG_BLOCK, &watched_, &before_);
    try {
      for (int64_t r = 0; r < count; ++r) children_.push_back(start(r, count, port, arguments));
    } catch (...) {
      kill_all();
      throw;
    }
  }
  ~Processes() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  int wait() {
    while (running() > 0) {
      const timespec second{.tv_sec = 0, .tv_nsec = 200'000'000};
      const int signal = ::sigtimedwait(&watched_, nullptr, &second);
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) on_signal(signal);
      collect();
      if (failed_at_ > 0 && now() - failed_at_ > kSecondsToFollow) kill_all();
    }
    return code_;
  }

 private:
  struct Child {
    int64_t rank;
    pid_t pid;
    bool running = true;
  };

  Child start(int64_t rank, int64_t count, int port, const std::vector<std::string>& arguments) {
    const pid_t parent = ::getpid();
    std::vector<std::string> words{"moesaic"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<std::string> variables = environment_of(rank, count, port, parent);
    const auto argv = pointers(words), envp = pointers(variables);
    const pid_t pid = ::fork();
    require<IoError>(pid >= 0, "process {} of {} cannot be started: {}", rank, count, std::strerror(errno));
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::setpgid(0, 0);  // Ctrl-C reaches the parent alone, which passes it on
      ::sigprocmask(SIG_SETMASK, &before_, nullptr);
      ::execve("/proc/self/exe", argv.data(), envp.data());
      ::_exit(127);
    }
    return {rank, pid};
  }

  int64_t running() const {
    return std::count_if(children_.begin(), children_.end(), [](const Child& c) { return c.running; });
  }
  void kill_all() {
    killing_ = true;
    for (const Child& child : children_)
      if (child.running) ::kill(child.pid, SIGKILL);
  }
  void on_signal(int signal) {
    if (num_signals_++ > 0) {
      code_ = 130;
      return kill_all();
    }
    if (children_[0].running) ::kill(children_[0].pid, signal == SIGHUP ? SIGTERM : signal);
  }
  void collect() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      // A killed process takes longer to end than those that end because of it.
      const bool killed = WIFSIGNALED(status) && !killing_;
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code == 0 || (code_ != 0 && (!killed || code_ > 128))) continue;
      code_ = code;
      if (failed_at_ == 0) failed_at_ = now();
      if (killed)
        log_info("the process of rank {} was ended by signal {} ({})", child.rank, WTERMSIG(status),
                 ::strsignal(WTERMSIG(status)));
    }
  }

  sigset_t watched_, before_;
  std::vector<Child> children_;  // [rank]
  int code_ = 0, num_signals_ = 0;
  double failed_at_ = 0;
  bool killing_ = false;  // signals from here on are this process's
};

}  // namespace

int run_processes(int64_t count, int64_t control_port, const std::vector<std::string>& arguments) {
  const ReservedPort reserved;
  return Processes(count, control_port > 0 ? static_cast<int>(control_port) : reserved.number(), arguments)
      .wait();
}

}  // namespace moesaic
