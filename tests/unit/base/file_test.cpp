#include "base/file.h"
#include "base/line_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file_system.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class F>
std::string io_error_of(F&& f) {
  try {
    f();
  } catch (const IoError& error) {
    return error.what();
  }
  return "no IoError";
}

TEST(AtomicFile, IsNotThereUntilCommitted) {
  const TempFolder folder;
  AtomicFile file(folder / "a");
  file.write("hello ");
  file.write("world");
  EXPECT_EQ(file.size(), 11);
  EXPECT_FALSE(path_exists(folder / "a"));
  file.commit();
  EXPECT_EQ(slurp(folder / "a"), "hello world");
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("a"));
}

TEST(AtomicFile, KeepsTheOldFileWhenNotCommitted) {
  const TempFolder folder;
  spit(folder / "a", "old");
  { AtomicFile(folder / "a").write("new"); }
  EXPECT_EQ(slurp(folder / "a"), "old");
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("a"));
}

TEST(AtomicFile, ReplacesWhatACrashLeft) {
  const TempFolder folder;
  spit(folder / "a.tmp", "left over from a longer file");
  AtomicFile file(folder / "a");
  file.write("new");
  file.commit();
  EXPECT_EQ(slurp(folder / "a"), "new");
}

TEST(AtomicFile, UnsyncedIsWholeToOthersAllTheSame) {
  const TempFolder folder;
  spit(folder / "a", "old");
  AtomicFile file(folder / "a");
  file.write("new");
  EXPECT_EQ(slurp(folder / "a"), "old");
  file.commit_unsynced();
  EXPECT_EQ(slurp(folder / "a"), "new");
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("a"));
}

TEST(AtomicFile, MixesSmallAndLargeWrites) {
  const TempFolder folder;
  std::string expected;
  AtomicFile file(folder / "a");
  for (const size_t bytes :
       {size_t{3}, size_t{1} << 20, size_t{5}, (size_t{1} << 20) + 1, size_t{900000}, size_t{200000}}) {
    const std::string part(bytes, static_cast<char>('a' + expected.size() % 26));
    file.write(part);
    expected += part;
  }
  file.commit();
  EXPECT_TRUE(slurp(folder / "a") == expected);
}

/// A disk that wants what goes around the page cache in its own blocks; 0: has no such way.
class Blocks : public FileSystem {
 public:
  explicit Blocks(size_t block) : block_(block) {}
  int open(const std::string& path, int flags, mode_t mode) override {
    direct_ = (flags & O_DIRECT) != 0;
    if (direct_ && block_ == 0) return errno = EINVAL, -1;
    return FileSystem::open(path, flags & ~O_DIRECT, mode);
  }
  ssize_t write(int file, const void* from, size_t bytes) override {
    if (!direct_) return FileSystem::write(file, from, bytes);
    if (bytes % block_ != 0 || reinterpret_cast<uintptr_t>(from) % block_ != 0) return errno = EINVAL, -1;
    ++num_direct;
    return FileSystem::write(file, from, bytes - std::exchange(shorter, 0));
  }
  int num_direct = 0;
  size_t shorter = 0;  // bytes of the next write that are not taken

 private:
  size_t block_;
  bool direct_ = false;
};

/// Whether the file holds what was written.
bool writes_directly(const std::string& path, size_t bytes) {
  std::string expected;
  AtomicFile file(path, Caching::direct);
  for (size_t i = 0; expected.size() < bytes; ++i) {
    const std::string part(std::min(bytes - expected.size(), size_t{300001}),
                           static_cast<char>('a' + i % 26));
    file.write(part);
    expected += part;
  }
  EXPECT_EQ(file.size(), static_cast<int64_t>(bytes));
  file.commit();
  return slurp(path) == expected;
}

TEST(AtomicFile, GoesAroundThePageCacheWhereTheDiskLetsIt) {
  const TempFolder folder;
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{4096}, size_t{1} << 20, (size_t{5} << 20) + 12345}) {
    // The real disk; one of 512 bytes a block, of 4096, of more than we align to; one that has no such way.
    EXPECT_TRUE(writes_directly(folder / "a", bytes)) << bytes;
    for (const size_t block : {size_t{512}, size_t{4096}, size_t{3} << 20, size_t{0}}) {
      Blocks disk(block);
      const ReplacedFileSystem in_force(disk);
      EXPECT_TRUE(writes_directly(folder / "a", bytes)) << bytes << ' ' << block;
      EXPECT_EQ(disk.num_direct > 0, bytes > 0 && block > 0 && block <= 4096) << bytes << ' ' << block;
    }
  }
}

TEST(AtomicFile, GoesOnAfterADirectWriteThatFellShortBetweenBlocks) {
  const TempFolder folder;
  Blocks disk(512);
  disk.shorter = 100;
  const ReplacedFileSystem in_force(disk);
  EXPECT_TRUE(writes_directly(folder / "a", (size_t{3} << 20) + 77));
}

TEST(AtomicFile, NamesThePathAndTheFullDisk) {
  const TempFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / "a.tmp");
  const std::string message = io_error_of([&] {
    AtomicFile file(folder / "a");
    file.write("x");
    file.commit();
  });
  EXPECT_THAT(message, HasSubstr("cannot write " + folder / "a"));
  EXPECT_THAT(message, HasSubstr("No space left on device"));
  EXPECT_FALSE(path_exists(folder / "a"));
  EXPECT_FALSE(path_exists(folder / "a.tmp"));
}

TEST(AtomicFile, NamesAFolderThatIsMissing) {
  const TempFolder folder;
  EXPECT_THAT(io_error_of([&] { AtomicFile file(folder / "no/a"); }), HasSubstr("No such file or directory"));
}

TEST(InputFile, ReadsBytesAndRefusesRangesOutside) {
  const TempFolder folder;
  spit(folder / "a", "0123456789");
  InputFile first(folder / "a");
  const InputFile file = std::move(first);
  EXPECT_EQ(file.size(), 10);
  std::array<std::byte, 2> two{};
  file.read(8, two, "x");
  EXPECT_EQ(static_cast<char>(two[1]), '9');
  file.read(10, {}, "nothing");
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t offset : {int64_t{9}, int64_t{-1}, most})
    EXPECT_THAT(io_error_of([&] { file.read(offset, two, "the table"); }), HasSubstr("the table"));
}

TEST(InputFile, TakesAnEmptyFileAndRefusesFoldersAndMissingFiles) {
  const TempFolder folder;
  spit(folder / "empty", "");
  EXPECT_EQ(InputFile(folder / "empty").size(), 0);
  EXPECT_THROW(InputFile file(folder.path()), IoError);
  EXPECT_THAT(io_error_of([&] { InputFile file(folder / "none"); }), HasSubstr(folder / "none"));
}

TEST(LineReader, GivesLinesAcrossBlocksAndSaysWhetherTheLastIsWhole) {
  const TempFolder folder;
  const std::string longest(3 << 20, 'x');
  spit(folder / "a", "one\n\n" + longest + "\nlast");
  LineReader lines(folder / "a");
  EXPECT_EQ(lines.next(), "one");
  EXPECT_EQ(lines.position(), 4);
  EXPECT_EQ(lines.next(), "");
  EXPECT_TRUE(lines.next() == longest);
  EXPECT_TRUE(lines.whole());
  EXPECT_EQ(lines.next(), "last");
  EXPECT_FALSE(lines.whole());
  EXPECT_EQ(lines.position(), 5 + (3 << 20) + 1 + 4);
  EXPECT_EQ(lines.next(), std::nullopt);
  spit(folder / "empty", "");
  EXPECT_EQ(LineReader(folder / "empty").next(), std::nullopt);
}

TEST(LineReader, SaysSoWhenTheFileIsCutWhileOpen) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 400000; ++i) text += "a line\n";
  spit(folder / "a", text);
  LineReader lines(folder / "a");
  EXPECT_EQ(lines.next(), "a line");
  ASSERT_EQ(::truncate((folder / "a").c_str(), 100), 0);
  EXPECT_THAT(io_error_of([&] {
                while (lines.next()) {
                }
              }),
              HasSubstr("was cut while in use"));
}

TEST(ReadFile, HoldsToItsBound) {
  const TempFolder folder;
  spit(folder / "a", "0123456789");
  EXPECT_EQ(read_file(folder / "a", 10), "0123456789");
  EXPECT_THROW(read_file(folder / "a", 9), IoError);
  EXPECT_THROW(read_file(folder.path(), 9), IoError);
}

TEST(Folders, AreMadeListedRenamedAndRemoved) {
  const TempFolder folder;
  make_folders(folder / "x/y");
  make_folders(folder / "x/y");
  spit(folder / "x/f", "123");
  EXPECT_EQ(file_size(folder / "x/f"), 3);
  EXPECT_THROW(file_size(folder / "x/y"), IoError);
  EXPECT_THROW(make_folders(folder / "x/f"), IoError);
  rename_path(folder / "x", folder / "z");
  EXPECT_THAT(list_folder(folder / "z"), ElementsAre("f", "y"));
  EXPECT_THROW(rename_path(folder / "x", folder / "w"), IoError);
  remove_tree(folder / "z");
  remove_tree(folder / "z");
  EXPECT_FALSE(path_exists(folder / "z"));
  EXPECT_THROW(list_folder(folder / "z"), IoError);
}

}  // namespace
}  // namespace moesaic
