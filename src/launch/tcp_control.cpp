#include "launch/tcp_control.h"

#include <signal.h>

#include <chrono>

#include "base/error.h"
#include "launch/control_loops.h"

namespace moesaic {
namespace {

constexpr double kSecondsForAnswer = 1;
constexpr double kSecondsToConnect = 5;  // of one attempt
constexpr double kSecondsBetweenAttempts = 0.1;
constexpr int64_t kManyRanks = 256;
constexpr int64_t kLongFrames = int64_t{2} << 30;

/// Tries until rank 0 listens.
std::unique_ptr<ControlLink> connect_to_rank_0(const JoinOptions& options) {
  const double deadline = steady_seconds() + options.join_timeout;
  std::string problem;
  for (;;) {
    try {
      for (const tcp::Endpoint& endpoint : tcp::resolve(options.address, options.port)) {
        tcp::Socket socket = tcp::start_connect(endpoint);
        const bool in_time = tcp::wait_for(socket, true, kSecondsToConnect);
        problem = in_time ? tcp::connect_problem(socket) : "no answer";
        if (problem.empty()) return std::make_unique<ControlLink>(std::move(socket), kLongFrames);
      }
    } catch (const CommError& error) {  // a name that is not known yet
      problem = error.what();
    }
    require<CommError>(steady_seconds() < deadline, "rank 0 was not found at {} within {:g} s: {}",
                       tcp::text_of(options.address, options.port), options.join_timeout, problem);
    std::this_thread::sleep_for(std::chrono::duration<double>(kSecondsBetweenAttempts));
  }
}

/// Signals are for the thread that works.
template <class F>
std::thread start_without_signals(F&& f) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<F>(f));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

TcpControl::TcpControl(const JoinOptions& options)
    : options_(options), state_(options.rank, options.timeout) {
  if (options.size > kManyRanks) tcp::allow_many_sockets();
  if (options.rank == 0) {
    std::shared_ptr<ControlServer> server;
    try {
      server = std::make_shared<ControlServer>(options_, state_);
    } catch (const CommError& error) {
      fail<CommError>("{}; if another job uses that port, set run.control_port", error.what());
    }
    listener_ = start_without_signals([server] { server->run(); });
  } else {
    auto link = connect_to_rank_0(options_);
    rank_0_host_ = tcp::peer_host(link->socket());
    const auto client = std::make_shared<ControlClient>(options_, state_, std::move(link));
    listener_ = start_without_signals([client] { client->run(); });
  }
}

TcpControl::~TcpControl() {
  state_.stop();
  listener_.join();
}

std::vector<std::string> TcpControl::all_gather_at(const std::string& where, const std::string& mine) {
  check();
  require<CommError>(static_cast<int64_t>(mine.size()) <= kMaxText,
                     "a text of {} bytes is more than the control channel takes from a rank ({})",
                     mine.size(), kMaxText);
  state_.post({FrameKind::text, {round_}, {where, mine}});
  return state_.wait_for_texts(round_++);
}

void TcpControl::abort(const std::string& message) {
  if (state_.aborted()) return;
  state_.post({FrameKind::abort, {rank()}, {message.substr(0, 100000)}});
  // Rank 0 says whose reason counts; if it does not, this one's does.
  if (!state_.wait_for_abort(kSecondsForAnswer)) state_.abort(rank(), message);
}

void TcpControl::finish() {
  check();
  state_.post({FrameKind::finished, {}, {}});
  state_.wait_for_all_finished();
}

std::string TcpControl::describe(int64_t rank) {
  if (rank == this->rank()) return moesaic::describe(rank, state_.progress().status);
  state_.post({FrameKind::ask, {++question_, rank}, {}});
  const std::string answer = state_.wait_for_answer(question_, kSecondsForAnswer);
  return answer.empty() ? fmt::format("rank {}", rank) : answer;
}

std::vector<std::string> TcpControl::hosts() const {
  std::vector<std::string> hosts = state_.hosts();
  for (std::string& host : hosts)
    if (host.empty()) host = rank_0_host_;
  return hosts;
}

}  // namespace moesaic
