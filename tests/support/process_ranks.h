#pragma once
// Ranks that are processes: copies of the running test program, each in one test of it that is disabled otherwise.
//
//   TEST(ChildOfJobs, DISABLED_Work) { as_child([](const std::string& what) { run_ranks(...); }); }
//   TEST(Jobs, Work) { ProcessRanks ranks(4, "ChildOfJobs.DISABLED_Work", "what"); ranks.wait(30); ranks.code(0) ... }
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp/socket.h"
#include "launch/launch.h"
#include "support/temp_folder.h"

extern char** environ;

namespace moesaic::test {

/// Exit codes of a child.
inline constexpr int kDone = 0, kFailed = 1, kOtherFailed = 4;

/// The body of the disabled test: does `work` with what the parent passed, and exits as the command line does.
inline void as_child(const std::function<void(const std::string& what)>& work) {
  const char* what = std::getenv("MOESAIC_TEST_CHILD");
  if (what == nullptr) GTEST_SKIP() << "started by other tests";
  int code = kDone;
  try {
    work(what);
  } catch (const OtherRankFailed&) {
    code = kOtherFailed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = kFailed;
  }
  std::fflush(nullptr);
  std::_Exit(code);
}

/// The arguments by which this program runs that test.
inline std::vector<std::string> child_arguments(const std::string& test) {
  return {"--gtest_filter=" + test, "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
}

class ProcessRanks {
 public:
  using Variables = std::map<std::string, std::string>;

  /// `variables`: over those of torchrun; a value "RANK" stands for the rank.
  ProcessRanks(int64_t count, const std::string& test, const std::string& what,
               const Variables& variables = {}) {
    const int port = tcp::port_of(tcp::listen_at("127.0.0.1", 0));  // free a moment ago
    for (int64_t r = 0; r < count; ++r) start(r, count, port, test, what, variables);
  }
  ~ProcessRanks() {
    for (Child& child : children_)
      if (child.running) ::kill(child.pid, SIGKILL);
    wait(10);
  }

  void signal(int64_t rank, int signal) {
    signalled_ = now();
    ::kill(child(rank).pid, signal);
  }
  /// Waits until all but `left` processes have ended; false when they have not within `seconds`.
  bool wait(double seconds, size_t left = 0) {
    for (const double deadline = now() + seconds; now() < deadline;) {
      size_t running = 0;
      for (Child& child : children_) {
        int status = 0;
        if (child.running && ::waitpid(child.pid, &status, WNOHANG) == child.pid) {
          child.running = false;
          child.ended = now();
          child.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        running += child.running;
      }
      if (running <= left) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  int code(int64_t rank) { return child(rank).code; }
  std::string output(int64_t rank) { return slurp(file(rank)); }
  /// Seconds from signal() to its end.
  double seconds(int64_t rank) { return child(rank).ended - signalled_; }
  /// When it ended, by the steady clock.
  double ended(int64_t rank) { return child(rank).ended; }
  /// Waits until a rank has written `text`.
  bool wait_for_output(int64_t rank, const std::string& text, double seconds) {
    for (const double deadline = now() + seconds; now() < deadline;) {
      if (output(rank).find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

 private:
  struct Child {
    pid_t pid;
    bool running = true;
    int code = -1;
    double ended = 0;
  };
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  Child& child(int64_t rank) { return children_[static_cast<size_t>(rank)]; }
  std::string file(int64_t rank) const { return folder_ / ("rank" + std::to_string(rank)); }

  void start(int64_t rank, int64_t count, int port, const std::string& test, const std::string& what,
             const Variables& variables) {
    Variables all{{"RANK", std::to_string(rank)},
                  {"WORLD_SIZE", std::to_string(count)},
                  {"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", std::to_string(port - 1)},
                  {"MOESAIC_TEST_CHILD", what}};
    for (const auto& [name, value] : variables) all[name] = value == "RANK" ? std::to_string(rank) : value;
    std::vector<std::string> words{"child"}, environment;
    for (const std::string& word : child_arguments(test)) words.push_back(word);
    // Not GoogleTest's own: with this program's shard of the tests a child may have none, and succeeds without any work.
    for (char** variable = environ; *variable != nullptr; ++variable)
      if (const std::string text = *variable;
          text.rfind("GTEST_", 0) != 0 && all.count(text.substr(0, text.find('='))) == 0)
        environment.push_back(text);
    for (const auto& [name, value] : all) environment.push_back(fmt::format("{}={}", name, value));
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> at;
      at.reserve(texts.size() + 1);
      for (std::string& text : texts) at.push_back(text.data());
      at.push_back(nullptr);
      return at;
    };
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, file(rank).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    pid_t pid = -1;
    const int problem = ::posix_spawn(&pid, "/proc/self/exe", &files, nullptr, pointers(words).data(),
                                      pointers(environment).data());
    posix_spawn_file_actions_destroy(&files);
    if (problem != 0) throw std::runtime_error("a process could not be started");
    children_.push_back({pid});
  }

  TempFolder folder_;
  std::vector<Child> children_;
  double signalled_ = 0;
};

}  // namespace moesaic::test
