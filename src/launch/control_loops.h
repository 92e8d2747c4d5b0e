#pragma once
// The listening threads of the control channel: rank 0's, which serves all, and that of any other rank.
#include <memory>

#include "launch/control_hub.h"
#include "launch/tcp_control.h"

namespace moesaic {

inline constexpr int64_t kControlMagic = 0x6c6f72746e6f63;  // "control"
inline constexpr int64_t kControlVersion = 2;

/// Seconds between two signs of life of a rank; rank 0 is not asked to read more than some thousand a second.
double heartbeat_interval(int64_t size);
/// Seconds of silence after which a rank, or rank 0, is taken for stuck.
double silence_limit(const JoinOptions& options);

class ControlServer {
 public:
  /// Listens from now on. Throws CommError when the port is taken.
  ControlServer(const JoinOptions& options, ControlState& state);
  /// Until state.stopping().
  void run();

 private:
  /// A connection that has not said who it is, or was refused.
  struct Waiting {
    std::unique_ptr<ControlLink> link;
    double since;
    bool refused = false;
  };
  void turn();
  void accept_all(double now);
  void read_waiting(double now);
  void read_ranks(double now);
  void on_hello(Waiting& waiting, const Frame& hello);
  std::string reason_to_refuse(const Frame& hello) const;
  void begin(double now);
  void give_up_joining(double now);
  void beat(double now);
  void flush_all();
  void end();
  void send(int64_t rank, const Frame& frame);
  void send_all(const Frame& frame);

  const JoinOptions& options_;
  ControlState& state_;
  tcp::Socket listener_;
  std::vector<std::unique_ptr<ControlLink>> links_;  // [rank]; none for rank 0 and for who is not there
  std::vector<bool> lost_;                           // [rank] its link has ended, and the hub knows
  std::vector<Waiting> waiting_;
  ControlHub hub_;
  double began_, last_beat_ = 0;
  int64_t num_joined_ = 1;
  int num_warnings_ = 0;
  bool begun_ = false;
};

class ControlClient {
 public:
  /// `link` leads to rank 0.
  ControlClient(const JoinOptions& options, ControlState& state, std::unique_ptr<ControlLink> link);
  /// Until state.stopping().
  void run();

 private:
  void turn();
  std::string tell_rank_0() const { return describe(0, rank_0_); }
  std::string tell_me() const { return describe(options_.rank, state_.progress().status); }

  const JoinOptions& options_;
  ControlState& state_;
  std::unique_ptr<ControlLink> link_;
  RankStatus rank_0_;
  double heard_, last_beat_ = 0;
  bool welcomed_ = false, all_finished_ = false;
};

/// Ends the process, with the reason, when its work does not come to an end after an abort.
void leave_when_stuck(const JoinOptions& options, const ControlState& state);

/// What this rank does, as a frame.
Frame status_frame(const ControlState& state);

}  // namespace moesaic
