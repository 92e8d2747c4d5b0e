#include "report/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace moesaic {
namespace {

StepMetrics example(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 2.10344;
  m.tokens_per_s = 12345;
  m.grad_norm = 0.834;
  m.expert_load = {{3, 1}};
  return m;
}

constexpr auto kText = "step 120/1000  loss 2.1034  12.35k tokens/s  grad 0.83  balance 1.50  eta 45.0 s";
constexpr RunPosition kPosition{1000, 0.5, 45};

TEST(Progress, TextCountsStepsFromOneAndNamesEveryNumber) {
  EXPECT_EQ(progress_text(example(119), kPosition), kText);
  StepMetrics m = example(119);
  m.val_loss = 1.5;
  m.skipped = true;
  EXPECT_EQ(progress_text(m, {0, 0, -1}),
            "step 120  loss 2.1034  held-out 1.5000  12.35k tokens/s  grad 0.83  balance 1.50  SKIPPED");
}

TEST(Progress, TheBarFillsWhatTheTextLeavesAndGivesWayFirst) {
  const StepMetrics m = example(119);
  const std::string text = kText;
  const int size = static_cast<int>(text.size());
  EXPECT_EQ(progress_line(m, kPosition, size + 13), "[#####-----] " + text);
  EXPECT_EQ(progress_line(m, kPosition, size + 500), "[###############---------------] " + text);
  EXPECT_EQ(progress_line(m, kPosition, size + 7), text);
  EXPECT_EQ(progress_line(m, kPosition, 20), text.substr(0, 20));
  EXPECT_EQ(progress_line(m, {1000, 7.0, 45}, size + 8), "[#####] " + text);  // a fraction past the end
  EXPECT_EQ(progress_line(m, {1000, 0.0, 45}, size + 8), "[-----] " + text);
}

TEST(Progress, RemainingTimeCountsFromWhereThisProcessStarted) {
  EXPECT_DOUBLE_EQ(estimate_remaining(10, 0, 0.25), 30);
  EXPECT_DOUBLE_EQ(estimate_remaining(10, 0.5, 0.75), 10);  // resumed half way
  EXPECT_LT(estimate_remaining(10, 0.5, 0.5), 0);
}

// What a writer prints for `steps` steps of ten.
std::string written(int columns, int64_t plain_every, int64_t steps, void (*end)(ProgressWriter&)) {
  char* buffer = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&buffer, &size);
  {
    ProgressWriter writer(out, columns, plain_every);
    for (int64_t i = 0; i < steps; ++i) writer.update(example(i), {10, static_cast<double>(i + 1) / 10, -1});
    end(writer);
  }
  std::fclose(out);
  std::string text(buffer, size);
  std::free(buffer);
  return text;
}

std::string plain(int64_t step) {
  return progress_text(example(step - 1), {10, 0, -1}) + "\n";
}

TEST(Progress, WithoutATerminalTheFirstEveryNthAndTheLastStepWriteALine) {
  const auto nothing = [](ProgressWriter&) {};
  EXPECT_EQ(written(0, 4, 10, nothing), plain(1) + plain(4) + plain(8) + plain(10));
  EXPECT_EQ(written(0, 100, 9, nothing), plain(1));
}

TEST(Progress, OnATerminalOneLineIsRedrawnAndFinishedOnce) {
  const std::string first = "\r" + progress_line(example(0), {10, 0.1, -1}, 79) + "\x1b[K";
  const std::string second = "\r" + progress_line(example(1), {10, 0.2, -1}, 79) + "\x1b[K";
  EXPECT_EQ(written(80, 4, 2, [](ProgressWriter& w) { w.finish(); }), first + second + "\n");
  EXPECT_EQ(written(80, 4, 1, [](ProgressWriter& w) { w.clear(); }), first + "\r\x1b[K");
  EXPECT_EQ(written(80, 4, 0, [](ProgressWriter& w) { w.clear(); }), "");
}

TEST(Progress, AFileIsNotATerminal) {
  std::FILE* file = std::tmpfile();
  EXPECT_EQ(terminal_columns(file), 0);
  std::fclose(file);
}

}  // namespace
}  // namespace moesaic
