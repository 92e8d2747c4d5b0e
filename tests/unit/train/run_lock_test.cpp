// One job per run folder, and none in a folder that cannot be written.
#include "train/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "support/path_files.h"
#include "support/thrown.h"
#include "support/train_run.h"

namespace moesaic {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

TEST(RunLock, RefusesASecondJobOnEveryRankAndNamesTheFirst) {
  const TrainRun run;
  Config c = run.config("a");
  const std::string path = run.folder() / "runs/a/lock";
  make_folders(run.folder() / "runs/a");
  {
    const FileLock first(path, "host gpu07, process 4711");
    std::atomic<int> refused{0};
    run_ranks(c.run, 4, [&](Rank& rank) {
      EXPECT_THAT(message_of<IoError>([&] { RunLock lock(rank.control, c.run); }),
                  AllOf(HasSubstr(path), HasSubstr("host gpu07, process 4711"), HasSubstr("another folder")));
      ++refused;
    });
    EXPECT_EQ(refused, 4);
    message_of<IoError>([&] { run.train(c); });
    EXPECT_FALSE(path_exists(run.folder() / "runs/a/metrics.jsonl")) << "the first job's files are its own";
  }
  run.train(c);
  EXPECT_EQ(slurp(path), "") << "nobody's now";
}

TEST(RunLock, IsHeldWhileTraining) {
  const TrainRun run;
  Config c = run.config("a");
  c.train.save_every = 2;
  std::atomic<int> seen{0};
  PathFiles files([&](const std::string& path) {
    if (contains(path, "step_00000002.tmp/manifest.json.tmp")) {
      const std::string text = slurp(run.folder() / "runs/a/lock");
      seen += contains(text, fmt::format("process {}", ::getpid()));
      message_of<IoError>([&] { FileLock second(run.folder() / "runs/a/lock", "second"); });
    }
    return 0;
  });
  const ReplacedFileSystem in_force(files);
  run.train(c);
  EXPECT_EQ(seen, 1);
}

TEST(RunLock, OfAKilledJobBlocksNobody) {
  const TempFolder folder;
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(folder / "lock", this_process());
    if (::write(told[1], "x", 1) == 1) ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(told[0], &byte, 1), 1);
  EXPECT_THAT(message_of<IoError>([&] { FileLock lock(folder / "lock", "second"); }),
              HasSubstr(fmt::format("process {}", child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const FileLock lock(folder / "lock", "second");
  EXPECT_EQ(slurp(folder / "lock"), "second");
  ::close(told[0]);
  ::close(told[1]);
}

TEST(RunLock, RefusesAFolderThatCannotBeWritten) {
  const TrainRun run;
  const Config c = run.config("a");
  for (const char* what : {"runs/a/lock", "runs/a/checkpoints/probe.tmp"}) {
    PathFiles files([&](const std::string& path) { return path == run.folder() / what ? EROFS : 0; });
    const ReplacedFileSystem in_force(files);
    EXPECT_THAT(message_of<IoError>([&] { run.train(c); }),
                AllOf(HasSubstr(what), HasSubstr("Read-only file system"), HasSubstr("choose a folder")));
  }
  EXPECT_FALSE(path_exists(run.folder() / "runs/a/config.toml")) << "training had not begun";
  run.train(c);
  EXPECT_FALSE(path_exists(run.folder() / "runs/a/checkpoints/probe"));
}

TEST(FileLock, WarnsWhereTheFileSystemHasNoLocks) {
  class NoLocks : public FileSystem {
    int lock(int) override {
      errno = ENOLCK;
      return -1;
    }
  } files;
  const TempFolder folder;
  const ReplacedFileSystem in_force(files);
  testing::internal::CaptureStderr();
  { const FileLock lock(folder / "lock", "me"); }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("has no locks"));
}

}  // namespace
}  // namespace moesaic
