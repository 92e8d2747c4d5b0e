// Frames of the control channel, and what rank 0 makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "launch/control_hub.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLimit = int64_t{1} << 30;

TEST(ControlFrames, ComeOutAsTheyWentIn) {
  const std::vector<Frame> frames{
      {FrameKind::hello, {1, -2, 3, 4, std::numeric_limits<int64_t>::min(), 6}, {}},
      {FrameKind::status, {-1, 2, 3}, {"all_gather tokens", ""}},
      {FrameKind::text, {7}, {"here", std::string(300'000, '\0')}},
      {FrameKind::texts, {7}, {"", "b", std::string("\xff\0x", 3)}},
      {FrameKind::finished, {}, {}},
      {FrameKind::abort, {2}, {"rank 2 failed"}}};
  std::string stream;
  for (const Frame& frame : frames) stream += encode(frame);
  for (const size_t step : {size_t{1}, size_t{1000}, stream.size()}) {
    FrameReader reader(kLimit);
    std::vector<Frame> found;
    for (size_t at = 0; at < stream.size(); at += step) {
      const std::string part = stream.substr(at, step);
      reader.add(part.data(), part.size());
      for (Frame frame; reader.next(frame);) found.push_back(frame);
    }
    ASSERT_EQ(found.size(), frames.size());
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(found[i].kind, frames[i].kind);
      EXPECT_EQ(found[i].numbers, frames[i].numbers);
      EXPECT_EQ(found[i].texts, frames[i].texts);
    }
  }
}

/// True when the reader takes it for frames so far.
bool accepts(const std::string& bytes, int64_t limit = kLimit) {
  FrameReader reader(limit);
  reader.add(bytes.data(), bytes.size());
  try {
    for (Frame frame; reader.next(frame);) {
    }
    return true;
  } catch (const CommError&) {
    return false;
  }
}

TEST(ControlFrames, AreRefusedWhenSizesAreWrong) {
  EXPECT_FALSE(accepts("GET / HTTP/1.1\r\nHost: here\r\n\r\n"));
  EXPECT_FALSE(accepts(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", 10)));  // TLS
  const std::string status = encode({FrameKind::status, {1, 2, 3}, {"abc", "def"}});
  EXPECT_TRUE(accepts(status));
  EXPECT_FALSE(accepts(status, 10));
  for (size_t at = 0; at < status.size() - 3; ++at) {  // the last three bytes are text
    if (at >= 10 && at < 34) continue;                 // numbers
    if (at >= 38 && at < 41) continue;                 // text
    for (const int change : {1, 0x80}) {
      std::string wrong = status;
      wrong[at] = static_cast<char>(wrong[at] ^ change);
      // A frame that is longer than what has come may still be waited for; none may come out.
      FrameReader reader(kLimit);
      reader.add(wrong.data(), wrong.size());
      Frame frame;
      try {
        EXPECT_FALSE(reader.next(frame) && at != 4) << at;  // byte 4: another kind of the same form
      } catch (const CommError&) {
      }
    }
  }
}

TEST(ControlFrames, AnyBytesAreFramesOrAnError) {
  for (uint64_t i = 0; i < 20000; ++i) {
    std::string bytes = encode({FrameKind::texts, {3}, {"some", "", "texts of ranks"}});
    for (uint64_t k = 0; k <= random_below(4, i, 1, 0); ++k)
      bytes[random_below(bytes.size(), i, 2, k)] = static_cast<char>(random_below(256, i, 3, k));
    accepts(bytes + bytes);
  }
}

/// Rank 0 of a job, with the frames that it sends.
class Hub {
 public:
  explicit Hub(int64_t size)
      : hub(size, 4,
            {.one = [this](int64_t rank, const Frame& frame) { sent.emplace_back(rank, frame); },
             .all = [this](const Frame& frame) { sent.emplace_back(-1, frame); }}) {
    hub.begin(0);
  }
  void status(int64_t rank, int64_t step, const std::string& operation, double now = 0,
              const std::string& waits_for = "") {
    hub.on_frame(rank, {FrameKind::status, {step, 0, 10'000}, {operation, waits_for}}, now);
  }
  void text(int64_t rank, int64_t round, const std::string& text, double now = 0,
            const std::string& where = "here") {
    hub.on_frame(rank, {FrameKind::text, {round}, {where, text}}, now);
  }
  std::string abort_message() const {
    if (sent.empty() || sent.back().second.kind != FrameKind::abort || sent.back().first != -1)
      return "no abort";
    return fmt::format("{}: {}", sent.back().second.numbers[0], sent.back().second.texts[0]);
  }
  std::vector<std::pair<int64_t, Frame>> sent;
  ControlHub hub;
};

TEST(ControlHub, GathersTextsInRankOrderRoundAfterRound) {
  Hub h(3);
  for (int64_t round = 0; round < 3; ++round) {
    h.text(2, round, "c");
    h.text(0, round, "a");
    EXPECT_EQ(h.sent.size(), static_cast<size_t>(round));
    h.text(1, round, std::to_string(round));
    ASSERT_EQ(h.sent.size(), static_cast<size_t>(round + 1));
    EXPECT_EQ(h.sent.back().first, -1);
    EXPECT_EQ(h.sent.back().second.kind, FrameKind::texts);
    EXPECT_THAT(h.sent.back().second.texts, ElementsAre("a", std::to_string(round), "c"));
  }
}

TEST(ControlHub, NamesARankThatIsGoneAndWhatTheOthersDid) {
  Hub h(5);
  for (int64_t r : {0, 1, 3}) h.status(r, 5, "all_gather head");
  h.status(2, 5, "reading a file");
  h.hub.on_lost(2);
  EXPECT_EQ(h.abort_message(),
            "0: rank 2 (step 5, last operation: reading a file) is gone: its connection to rank 0 has ended; "
            "the others: "
            "ranks 0-1, 3 (step 5, last operation: all_gather head), rank 4 (last operation: start)");
  h.hub.on_lost(1);  // follows from it
  EXPECT_EQ(h.sent.size(), 1u);
}

TEST(ControlHub, NamesASilentRank) {
  Hub h(2);
  h.status(0, 1, "work", 3);
  h.status(1, 1, "work", 1);
  h.hub.tick(4.9);
  EXPECT_TRUE(h.sent.empty());
  h.hub.tick(5.1);
  EXPECT_THAT(
      h.abort_message(),
      HasSubstr("0: rank 1 (step 1, last operation: work) was not heard of for 4 s; the others: rank 0"));
}

TEST(ControlHub, NamesThoseWhoDoNotComeToAnAgreement) {
  Hub h(4);
  for (double now = 0; now < 10; ++now)
    for (int64_t r = 0; r < 4; ++r) h.status(r, 2, "saving", now, r % 2 == 0 ? "all ranks to agree" : "");
  h.hub.tick(9.9);
  EXPECT_TRUE(h.sent.empty());
  h.hub.tick(10.1);
  EXPECT_EQ(
      h.abort_message(),
      "0: ranks 1, 3 (step 2, last operation: saving) stood still for 10 s while others waited: ranks 0, 2 "
      "(step 2, last operation: saving; waits for all ranks to agree)");
}

TEST(ControlHub, RanksThatComeToDifferentAgreementsEndTheJob) {
  Hub h(2);
  h.status(1, 3, "save checkpoint");
  h.text(0, 0, "", 1, "trainer.cpp:100");
  h.text(1, 0, "", 1, "checkpointing.cpp:80");
  EXPECT_EQ(h.abort_message(),
            "0: rank 1 (step 3, last operation: save checkpoint) came to the agreement of all ranks at "
            "checkpointing.cpp:80 where rank 0 (last operation: start) came to the one at trainer.cpp:100");
}

TEST(ControlHub, TheFirstAbortWins) {
  Hub h(3);
  h.hub.on_frame(1, {FrameKind::abort, {1}, {"first"}}, 0);
  h.hub.on_frame(2, {FrameKind::abort, {2}, {"second"}}, 0);
  h.hub.tick(100);
  EXPECT_EQ(h.sent.size(), 1u);
  EXPECT_EQ(h.abort_message(), "1: first");
}

TEST(ControlHub, AnswersWhatARankIsDoing) {
  Hub h(3);
  h.status(2, 9, "all_reduce loss");
  h.hub.on_frame(1, {FrameKind::ask, {77, 2}, {}}, 0);
  h.hub.on_frame(1, {FrameKind::ask, {78, 99}, {}}, 0);
  ASSERT_EQ(h.sent.size(), 2u);
  EXPECT_EQ(h.sent[0].first, 1);
  EXPECT_EQ(h.sent[0].second.numbers[0], 77);
  EXPECT_THAT(h.sent[0].second.texts, ElementsAre("rank 2 (step 9, last operation: all_reduce loss)"));
  EXPECT_THAT(h.sent[1].second.texts, ElementsAre(""));
}

TEST(ControlHub, EndsWhenAllHaveFinishedAndOnlyThen) {
  Hub h(2);
  h.hub.on_frame(1, {FrameKind::finished, {}, {}}, 0);
  h.hub.on_frame(1, {FrameKind::finished, {}, {}}, 0);
  EXPECT_TRUE(h.sent.empty());
  h.hub.on_frame(0, {FrameKind::finished, {}, {}}, 0);
  ASSERT_EQ(h.sent.size(), 1u);
  EXPECT_EQ(h.sent[0].second.kind, FrameKind::all_finished);
  h.hub.on_lost(1);
  h.hub.tick(100);
  EXPECT_EQ(h.sent.size(), 1u);
}

TEST(ControlHub, RanksOutOfStepOrOutOfTurnEndTheJob) {
  Hub twice(2);
  twice.text(1, 0, "");
  twice.text(1, 0, "");
  EXPECT_THAT(twice.abort_message(), HasSubstr("rank 1 (last operation: start) came to agreement 0"));
  Hub ahead(2);
  ahead.text(1, 3, "");
  EXPECT_THAT(ahead.abort_message(), HasSubstr("rank 1 (last operation: start) came to agreement 3"));
  Hub odd(2);
  odd.hub.on_frame(1, {FrameKind::welcome, {1}, {"x"}}, 0);
  EXPECT_THAT(odd.abort_message(), HasSubstr("sent what only rank 0 sends"));
}

TEST(RankStatus, ManyRanksAreToldBriefly) {
  std::vector<RankStatus> statuses(1000, {3, "wait"});
  std::vector<int64_t> all;
  for (int64_t r = 0; r < 1000; ++r) all.push_back(r);
  for (size_t r = 0; r < 1000; r += 100) statuses[r].step = static_cast<int64_t>(r);
  const std::string text = describe(all, statuses);
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 1-99, 101-199, "), HasSubstr("(step 3, last operation: wait)"),
                          HasSubstr(" and 3 others"), testing::SizeIs(testing::Lt(600u))));
}

}  // namespace
}  // namespace moesaic::test
