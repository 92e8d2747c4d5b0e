// The control channel over real sockets; its ranks are threads of this test.
#include "launch/tcp_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "comm/tcp/socket.h"
#include "launch/control_frame.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

/// A port that was free a moment ago.
int free_port() {
  return tcp::port_of(tcp::listen_at("127.0.0.1", 0));
}

JoinOptions options(int64_t rank, int64_t size, int port) {
  return {
      .rank = rank, .size = size, .address = "127.0.0.1", .port = port, .timeout = 20, .join_timeout = 20};
}

double seconds_of(const std::function<void()>& work) {
  const double start = steady_seconds();
  work();
  return steady_seconds() - start;
}

/// Runs `work` on a thread for each option; returns what each threw, "" for nothing.
std::vector<std::string> run(const std::vector<JoinOptions>& all,
                             const std::function<void(TcpControl&)>& work) {
  std::vector<std::string> thrown(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        TcpControl control(all[i]);
        control.join();
        work(control);
      } catch (const std::exception& error) {
        thrown[i] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

std::vector<std::string> run(int64_t size, const std::function<void(TcpControl&)>& work,
                             double timeout = 20) {
  const int port = free_port();
  std::vector<JoinOptions> all;
  for (int64_t r = 0; r < size; ++r) {
    all.push_back(options(r, size, port));
    all.back().timeout = timeout;
  }
  return run(all, work);
}

TEST(TcpControl, DoesWhatItWasGivenWhileItWaits) {
  const auto thrown = run(2, [](TcpControl& control) {
    int times = 0;
    control.set_while_waiting([&] { ++times; });
    if (control.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    control.barrier();
    EXPECT_TRUE(control.rank() == 1 || times > 3) << times;
    times = 0;
    if (control.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    control.finish();
    EXPECT_TRUE(control.rank() == 0 || times > 3) << times;
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpControl, GathersTextsRoundAfterRound) {
  const auto thrown = run(4, [](TcpControl& control) {
    const int64_t me = control.rank();
    for (int round = 0; round < 200; ++round) {
      const auto all = control.all_gather(std::to_string(10 * round + me));
      ASSERT_EQ(all.size(), 4u);
      for (int p = 0; p < 4; ++p) ASSERT_EQ(all[static_cast<size_t>(p)], std::to_string(10 * round + p));
    }
    const auto large = control.all_gather(std::string(static_cast<size_t>(1'000'000 * me), 'x'));
    for (size_t p = 0; p < 4; ++p) EXPECT_EQ(large[p].size(), 1'000'000 * p);
    EXPECT_EQ(control.sum(me), 6);
    EXPECT_EQ(control.broadcast(me == 0 ? "zero" : "other"), "zero");
    EXPECT_THAT(control.hosts(), Each("127.0.0.1"));
    EXPECT_TRUE(control.same(std::to_string(control.token())));
    control.finish();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpControl, ATextThatIsTooLongIsRefusedWhereItComesFrom) {
  const auto thrown = run(2, [](TcpControl& control) {
    const size_t length = control.rank() == 1 ? (64 << 20) + 1 : 1;
    try {
      control.all_gather(std::string(length, 'x'));
    } catch (const CommError& error) {
      control.abort(error.what());
      throw;
    }
  });
  EXPECT_THAT(thrown, Each(HasSubstr("more than the control channel takes")));
}

TEST(TcpControl, AnAbortReachesEveryRankAtOnceAndTheFirstWins) {
  const double seconds = seconds_of([] {
    const auto thrown = run(4, [](TcpControl& control) {
      control.barrier();
      if (control.rank() == 2) {
        control.abort("rank 2 has had enough");
        EXPECT_EQ(control.origin(), 2);
      }
      control.all_gather("");
    });
    EXPECT_THAT(thrown, Each("rank 2 has had enough"));
  });
  EXPECT_LT(seconds, 3);
}

TEST(TcpControl, ARankThatIsGoneEndsTheOthersWithinASecond) {
  for (const int64_t gone : {0, 2}) {
    std::atomic<double> left{0};
    std::array<std::atomic<double>, 4> ended{};
    const auto thrown = run(4, [&](TcpControl& control) {
      const int64_t me = control.rank();
      control.set_step(5);
      control.set_operation(me == gone ? "all_gather head" : "waiting");
      control.barrier();
      if (me == gone) {
        left = steady_seconds();
        return;  // without finish(): the connection closes, as when the process dies
      }
      try {
        control.all_gather("");
      } catch (const CommError&) {
        ended[static_cast<size_t>(me)] = steady_seconds();
        throw;
      }
    });
    for (int64_t r = 0; r < 4; ++r) {
      if (r == gone) continue;
      EXPECT_THAT(
          thrown[static_cast<size_t>(r)],
          AllOf(HasSubstr(fmt::format("rank {} (step 5, last operation: all_gather head) is gone", gone)),
                HasSubstr("(step 5, last operation: waiting")));
      // Rank 0 sees its own end through while it serves the others.
      EXPECT_LT(ended[static_cast<size_t>(r)] - left, gone == 0 ? 2.0 : 1.0);
    }
  }
}

TEST(TcpControl, HostAgreementNamesWhoDidNotCome) {
  const auto thrown = run(
      3,
      [](TcpControl& control) {
        control.set_operation("saving");
        if (control.rank() != 1) control.all_gather("mine");
        while (true) {
          control.check();
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      },
      1);
  EXPECT_THAT(thrown,
              Each("rank 1 (last operation: saving) stood still for 1 s while others waited: ranks 0, 2 "
                   "(last operation: saving; waits for all ranks to come to an agreement)"));
}

TEST(TcpControl, DescribesOtherRanks) {
  const auto thrown = run(3, [](TcpControl& control) {
    control.set_step(control.rank());
    control.set_operation("thinking");
    control.barrier();
    for (int64_t r = 0; r < 3; ++r)
      EXPECT_EQ(control.describe(r), fmt::format("rank {} (step {}, last operation: thinking)", r, r));
    control.finish();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpControl, FinishWaitsForTheSlowest) {
  std::atomic<int> ended{0};
  const auto thrown = run(3, [&](TcpControl& control) {
    if (control.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(ended, 0);
    }
    control.finish();
    ++ended;
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(ended, 3);
}

TEST(TcpControl, AnAbortReachesRanksThatHaveFinished) {
  const auto thrown = run(2, [&](TcpControl& control) {
    if (control.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      control.abort("late failure");
    }
    control.finish();
  });
  EXPECT_THAT(thrown, Each("late failure"));
}

TEST(TcpControl, RanksMayComeInAnyOrder) {
  const int port = free_port();
  std::vector<JoinOptions> all;
  for (int64_t r : {2, 1, 0}) all.push_back(options(r, 3, port));
  std::vector<std::string> thrown(3);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      try {
        TcpControl control(all[i]);
        control.join();
        control.barrier();
        control.finish();
      } catch (const std::exception& error) {
        thrown[i] = error.what();
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpControl, RanksThatDoNotComeAreNamed) {
  const int port = free_port();
  std::vector<JoinOptions> all{options(0, 4, port), options(2, 4, port)};
  for (JoinOptions& o : all) o.join_timeout = 0.5;
  EXPECT_THAT(
      run(all, [](TcpControl&) {}),
      Each(HasSubstr(fmt::format("2 of 4 ranks came to 127.0.0.1:{} within 0.5 s; missing: 1, 3", port))));
}

TEST(TcpControl, ARankZeroThatDoesNotComeIsMissed) {
  JoinOptions alone = options(1, 2, free_port());
  alone.join_timeout = 0.5;
  EXPECT_THAT(run({alone}, [](TcpControl&) {})[0], AllOf(HasSubstr("rank 0 was not found at 127.0.0.1:"),
                                                         HasSubstr("within 0.5 s: Connection refused")));
}

TEST(TcpControl, OtherJobsAreRefusedWithTheReason) {
  const int port = free_port();
  const auto refused_with = [&](auto change) {
    JoinOptions first = options(0, 2, port), second = options(1, 2, port), stranger = options(1, 2, port);
    first.config = second.config = stranger.config = 11, first.job = second.job = stranger.job = 22;
    change(stranger);
    std::string reason;
    const auto thrown = run({first, second}, [&](TcpControl& control) {
      if (control.rank() == 1) reason = run({stranger}, [](TcpControl&) {})[0];
      control.barrier();
      control.finish();
    });
    EXPECT_THAT(thrown, Each(""));  // the job is not harmed
    return reason;
  };
  EXPECT_THAT(refused_with([](JoinOptions& o) { o.config = 12; }),
              AllOf(HasSubstr("was given another configuration"), HasSubstr("set run.control_port")));
  EXPECT_THAT(refused_with([](JoinOptions& o) { o.job = 23; }), HasSubstr("is another one"));
  EXPECT_THAT(refused_with([](JoinOptions& o) { o.size = 3; }), HasSubstr("has 2 ranks, this one 3"));
  EXPECT_THAT(refused_with([](JoinOptions&) {}), HasSubstr("has a rank 1 already"));
  EXPECT_THAT(refused_with([](JoinOptions& o) { o.rank = 7; }), HasSubstr("this says that it is rank 7"));
}

TEST(TcpControl, TwoRankZerosOnOnePort) {
  const int port = free_port();
  std::string reason;
  const auto thrown = run({options(0, 2, port), options(1, 2, port)}, [&](TcpControl& control) {
    if (control.rank() == 1) reason = run({options(0, 2, port)}, [](TcpControl&) {})[0];
    control.barrier();
    control.finish();
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_THAT(reason, AllOf(HasSubstr(fmt::format("port {} of this machine cannot be listened on", port)),
                            HasSubstr("set run.control_port")));
}

TEST(TcpControl, StrangersDoNotDisturb) {
  const int port = free_port();
  std::vector<tcp::Socket> strangers;
  const auto thrown = run({options(0, 2, port), options(1, 2, port)}, [&](TcpControl& control) {
    if (control.rank() == 1) {
      const std::string texts[] = {"GET / HTTP/1.1\r\n\r\n", std::string(100'000, '\0'), "",
                                   encode({FrameKind::abort, {0}, {"stop it"}}),
                                   encode({FrameKind::text, {0}, {"here", "mine"}})};
      for (const std::string& text : texts) {
        strangers.push_back(tcp::start_connect({"127.0.0.1", port}));
        tcp::wait_for(strangers.back(), true, 5);
        strangers.back().send(text.data(), static_cast<int64_t>(text.size()));
      }
    }
    for (int i = 0; i < 100; ++i) control.barrier();
    control.finish();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpControl, WhatAnswersMustBeMoesaic) {
  const tcp::Socket listener = tcp::listen_at("127.0.0.1", 0);
  std::thread other([&] {
    tcp::wait_for(listener, false, 5);
    tcp::Socket socket = tcp::accept_from(listener);
    const std::string text = "220 mail.example.org ESMTP ready\r\n";
    socket.send(text.data(), static_cast<int64_t>(text.size()));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  EXPECT_THAT(run({options(1, 2, tcp::port_of(listener))}, [](TcpControl&) {})[0],
              HasSubstr("what came is not from a Moesaic job"));
  other.join();
}

}  // namespace
}  // namespace moesaic::test
