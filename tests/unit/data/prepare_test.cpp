#include "data/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <thread>

#include "base/file.h"
#include "data/token_file.h"
#include "support/temp_folder.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kEnd = 257;

void ignore(const PreparedTokens&) {}

PreparedTokens prepare(const std::vector<std::string>& inputs, const std::string& prefix,
                       const PrepareOptions& options = {}) {
  return prepare_tokens(inputs, prefix, *open_tokenizer("bytes"), options, ignore);
}

std::string text_of(const std::string& prefix) {
  const TokenFile file(prefix);
  std::vector<int32_t> ids(static_cast<size_t>(file.num_tokens()));
  file.read(0, ids, 259);
  std::string text;
  for (const int32_t id : ids) text.push_back(id == kEnd ? '|' : static_cast<char>(id));
  return text;
}

std::string compressed(const std::string& text, int window_log = 0) {
  std::string out(ZSTD_compressBound(text.size()), ' ');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  if (window_log > 0) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  }
  ZSTD_inBuffer from{text.data(), text.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  // In two calls, so that the size is not known to the frame, as from a pipe.
  from.size = text.size() / 2;
  while (from.pos < from.size) ZSTD_compressStream2(context, &to, &from, ZSTD_e_continue);
  from.size = text.size();
  while (ZSTD_compressStream2(context, &to, &from, ZSTD_e_end) != 0) {
  }
  ZSTD_freeCCtx(context);
  out.resize(to.pos);
  return out;
}

TEST(Prepare, MakesADocumentOfEachTextFile) {
  const TempFolder folder;
  spit(folder / "a.txt", "hi\n");
  spit(folder / "empty.txt", "");
  spit(folder / "b.txt.zst", compressed("there\n"));
  const auto done = prepare({folder / "a.txt", folder / "empty.txt", folder / "b.txt.zst"}, folder / "t");
  EXPECT_EQ(done.num_documents, 3);
  EXPECT_EQ(done.num_tokens, 12);
  EXPECT_EQ(done.num_bytes, 9);
  EXPECT_EQ(text_of(folder / "t"), "hi\n||there\n|");
  const TokenFile file(folder / "t");
  EXPECT_EQ(file.num_documents(), 3);
  EXPECT_EQ(file.dtype(), DType::u16);
  EXPECT_EQ(file.document_start(2), 5);
}

TEST(Prepare, MakesADocumentOfEachJsonLine) {
  const TempFolder folder;
  const std::string lines =
      "\xef\xbb\xbf{\"text\":\"one\"}\n\n  "
      "\r\n{\"id\":2,\"text\":\"t\\u0077o\\n\"}\r\n{\"text\":\"\"}\n{\"text\":\"last\"}";
  spit(folder / "a.jsonl", lines);
  spit(folder / "b.jsonl.zst", compressed(lines) + compressed("\n{\"text\":\"of the second frame\"}\n"));
  EXPECT_EQ(prepare({folder / "a.jsonl"}, folder / "a").num_documents, 4);
  EXPECT_EQ(text_of(folder / "a"), "one|two\n||last|");
  prepare({folder / "b.jsonl.zst"}, folder / "b");
  EXPECT_EQ(text_of(folder / "b"), "one|two\n||last|of the second frame|");

  PrepareOptions options;
  options.end_of_document = false;
  prepare({folder / "a.jsonl"}, folder / "c", options);
  EXPECT_EQ(text_of(folder / "c"), "onetwo\nlast");
  EXPECT_EQ(TokenFile(folder / "c").num_documents(), 4);
  options.format = TextFormat::text;
  prepare({folder / "a.jsonl"}, folder / "d", options);
  EXPECT_EQ(text_of(folder / "d"), lines);
}

TEST(Prepare, GivesTheSameForAnyNumberOfThreads) {
  const TempFolder folder;
  std::string lines, texts;
  int64_t count = 0;
  for (uint64_t i = 0; lines.size() < 2'500'000; ++i, ++count) {
    const std::string text(i * i % 3001, static_cast<char>('a' + i % 26));
    lines += "{\"text\":\"" + text + "\"}\n";
    texts += text + "|";
  }
  const std::string long_text(TextBlocks::kTextBlock + 12345, 'x');  // without a line end
  spit(folder / "a.jsonl", lines);
  spit(folder / "long.txt", long_text);
  for (const int64_t threads : {1, 7}) {
    PrepareOptions options;
    options.num_threads = threads;
    const auto done = prepare({folder / "a.jsonl", folder / "long.txt"}, folder / "t", options);
    EXPECT_EQ(done.num_documents, count + 1);
    EXPECT_TRUE(text_of(folder / "t") == texts + long_text + "|") << threads;
    EXPECT_EQ(TokenFile(folder / "t").document_start(count), static_cast<int64_t>(texts.size()));
  }
}

TEST(Prepare, NamesABrokenLineOrCountsIt) {
  const TempFolder folder;
  std::string lines;
  for (int i = 1; i <= 60'000; ++i)  // several blocks
    lines += i == 50'000 || i == 55'000 ? "{\"text\":1}\n" : "{\"text\":\"some words to fill the line\"}\n";
  spit(folder / "a.jsonl", lines);
  EXPECT_THAT(message_of<IoError>([&] { prepare({folder / "a.jsonl"}, folder / "t"); }),
              HasSubstr("a.jsonl:50000: not a line of JSON lines with text under \"text\": the key does not "
                        "hold a string (at byte 9"));
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("a.jsonl"));
  PrepareOptions options;
  options.skip_broken = true;
  options.num_threads = 4;
  const auto done = prepare({folder / "a.jsonl"}, folder / "t", options);
  EXPECT_EQ(done.num_broken, 2);
  EXPECT_EQ(done.num_documents, 59'998);
  EXPECT_THAT(done.first_broken, HasSubstr(":50000:"));
}

TEST(Prepare, RefusesALineAboveTheLimit) {
  const TempFolder folder;
  spit(folder / "a.jsonl", "{\"text\":\"x\"}\n" + std::string(TextBlocks::kMaxLine + 3'000'000, ' '));
  EXPECT_THAT(message_of<IoError>([&] { prepare({folder / "a.jsonl"}, folder / "t"); }),
              HasSubstr("a.jsonl:2: the line is longer than 64 MiB"));
}

TEST(Prepare, RefusesDamagedAndForeignCompression) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>('a' + i * 7919 % 26 * (i % 3));
  const std::string good = compressed(text);
  const auto error_with = [&](const std::string& bytes, const std::string& name = "a.txt.zst") {
    spit(folder / name, bytes);
    return message_of<IoError>([&] { prepare({folder / name}, folder / "t"); });
  };
  for (const size_t size : {good.size() - 1, good.size() / 2, size_t{5}})
    EXPECT_THAT(error_with(good.substr(0, size)), HasSubstr("cut short inside a zstd frame")) << size;
  std::string bad = good;
  bad[good.size() / 2] = static_cast<char>(~bad[good.size() / 2]);
  bad[4] = static_cast<char>(bad[4] | 8);  // a reserved bit
  EXPECT_THAT(error_with(bad), HasSubstr("damaged: zstd says"));
  EXPECT_THAT(error_with(good + "junk"), HasSubstr("damaged: zstd says"));
  EXPECT_THAT(error_with("plain text"), HasSubstr("is not zstd data"));
  EXPECT_THAT(error_with("\x1f\x8b gzip", "a.txt.gz"), HasSubstr("zcat FILE"));
  EXPECT_THAT(error_with(compressed(text, 29)), HasSubstr("window above the 128 MiB"));
  EXPECT_FALSE(path_exists(folder / "t.bin"));
  spit(folder / "a.bin", good);  // known by its bytes, not its name
  prepare({folder / "a.bin"}, folder / "t");
  EXPECT_TRUE(text_of(folder / "t") == text + "|");
}

TEST(Prepare, ReadsAPipe) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe.jsonl").c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream pipe(folder / "pipe.jsonl");
    for (int i = 0; i < 3; ++i) pipe << "{\"text\":" << std::flush << "\"" << i << "\"}\n" << std::flush;
  });
  prepare({folder / "pipe.jsonl"}, folder / "t");
  writer.join();
  EXPECT_EQ(text_of(folder / "t"), "0|1|2|");
}

TEST(Prepare, LeavesNothingBehindWhenStopped) {
  const TempFolder folder;
  spit(folder / "a.txt", "hi\n");
  spit(folder / "b.txt", "there\n");
  const std::string files[] = {folder / "a.txt", folder / "b.txt"};
  for (const int stop_at : {1, 2, 3}) {  // 3: everything was written but not published
    int calls = 0;
    EXPECT_EQ(message_of<Error>([&] {
                prepare_tokens(files, folder / "t", *open_tokenizer("bytes"), {},
                               [&](const PreparedTokens&) { require<Error>(++calls < stop_at, "stopped"); });
              }),
              "stopped");
    EXPECT_THAT(list_folder(folder.path()), ElementsAre("a.txt", "b.txt"));
  }
  EXPECT_THROW(prepare({folder / "a.txt", folder / "none.txt"}, folder / "t"), IoError);
  EXPECT_THROW(prepare({}, folder / "t"), ConfigError);
  EXPECT_THAT(list_folder(folder.path()), ElementsAre("a.txt", "b.txt"));
}

/// Words by number, so that where a text was cut shows.
class CuttingTokenizer final : public Tokenizer {
 public:
  explicit CuttingTokenizer(int64_t vocab) : vocab_(vocab) {}
  int64_t vocab_size() const override { return vocab_; }
  std::vector<int32_t> encode(std::string_view text) const override {
    return {static_cast<int32_t>(text.size() % 100), static_cast<int32_t>(text.ends_with('\n')),
            static_cast<int32_t>(text.ends_with("\u00e9"))};
  }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  int32_t end_of_document() const override { return static_cast<int32_t>(vocab_) - 1; }
  std::string name() const override { return "cutting"; }

 private:
  int64_t vocab_;
};

TEST(Prepare, CutsLongTextsBehindLinesOrCharactersAndChoosesTheType) {
  const TempFolder folder;
  const auto block = static_cast<size_t>(TextBlocks::kTextBlock);
  spit(folder / "lines.txt", std::string(block - 10, 'x') + "\n" + std::string(30, 'y'));
  std::string wide = "x";
  while (wide.size() < block + 100) wide += "\u00e9";  // the block would end inside a character
  spit(folder / "wide.txt", wide);
  const std::string files[] = {folder / "lines.txt", folder / "wide.txt"};
  for (const auto& [vocab, dtype] : std::vector<std::pair<int64_t, DType>>{
           {256, DType::u8}, {257, DType::u16}, {65536, DType::u16}, {65537, DType::i32}}) {
    prepare_tokens(files, folder / "t", CuttingTokenizer(vocab), {}, ignore);
    const TokenFile file(folder / "t");
    EXPECT_EQ(file.dtype(), dtype);
    ASSERT_EQ(file.num_tokens(), 14);
    std::vector<int32_t> ids(14);
    file.read(0, ids, vocab);
    const auto end = static_cast<int32_t>(vocab) - 1;
    EXPECT_THAT(ids, ElementsAre((block - 9) % 100, 1, 0, 30, 0, 0, end, (block - 1) % 100, 0, 1,
                                 (wide.size() - block + 1) % 100, 0, 1, end));
    EXPECT_EQ(file.document_start(1), 7);
  }
}

}  // namespace
}  // namespace moesaic
