#include "base/input_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>
#include <thread>
#include <vector>

#include "base/file.h"
#include "support/temp_folder.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using testing::HasSubstr;

std::string text_at(const InputFile& file, int64_t offset, size_t count) {
  std::string text(count, ' ');
  file.read(offset, std::as_writable_bytes(std::span(text)), "the word");
  return text;
}

TEST(InputFile, ReadsAnywhereInsideAndNowhereElse) {
  const TempFolder folder;
  spit(folder / "a", "0123456789");
  const InputFile file(folder / "a");
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(text_at(file, 3, 4), "3456");
  EXPECT_EQ(text_at(file, 10, 0), "");
  for (const int64_t offset :
       {int64_t{7}, int64_t{11}, int64_t{-1}, std::numeric_limits<int64_t>::max(), int64_t{1} << 63})
    EXPECT_THAT(message_of<IoError>([&] { text_at(file, offset, 4); }),
                HasSubstr("the word needs 4 bytes at"))
        << offset;
}

TEST(InputFile, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { InputFile(folder / "none"); }), HasSubstr("cannot open"));
  EXPECT_THAT(message_of<IoError>([&] { InputFile(folder.path()); }), HasSubstr("not a regular file"));
}

TEST(InputStream, ReadsFilesAndPipesToTheirEnd) {
  const TempFolder folder;
  spit(folder / "a", "0123456789");
  std::vector<std::byte> bytes(7);
  InputStream file(folder / "a");
  EXPECT_EQ(file.read(bytes), 7u);
  EXPECT_EQ(file.read(bytes), 3u);
  EXPECT_EQ(static_cast<char>(bytes[2]), '9');
  EXPECT_EQ(file.read(bytes), 0u);

  // A pipe gives its bytes in small pieces.
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream pipe(folder / "pipe");
    for (int i = 0; i < 5; ++i) pipe << i << std::flush;
  });
  InputStream pipe(folder / "pipe");
  EXPECT_EQ(pipe.read(std::span(bytes).first(5)), 5u);
  EXPECT_EQ(static_cast<char>(bytes[4]), '4');
  EXPECT_EQ(pipe.read(bytes), 0u);
  writer.join();
}

TEST(InputStream, NamesWhatItCannotRead) {
  const TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { InputStream(folder / "none"); }), HasSubstr("none"));
  std::vector<std::byte> bytes(1);
  EXPECT_THAT(message_of<IoError>([&] { InputStream(folder.path()).read(bytes); }), HasSubstr("directory"));
  EXPECT_EQ(InputStream("-").name(), "standard input");
}

}  // namespace
}  // namespace moesaic
