#pragma once
// Messages through sockets: one connection with each rank that this one shares groups with, made when a group first needs it
// (the higher rank connects).
#include <memory>
#include <string>
#include <vector>

#include "comm/messages/messenger.h"
#include "comm/tcp/socket.h"

namespace moesaic::tcp {

using messages::Operation;

class TcpMesh final : public messages::Messenger {
 public:
  /// Called by all ranks together: they tell each other where they listen. `hosts`: of the ranks, as this one reaches them;
  /// `token`: known to this job's ranks only.
  TcpMesh(Control& control, std::vector<std::string> hosts, uint64_t token);
  ~TcpMesh() override;

  void progress() override;
  void check_connection(int64_t rank) override;

 private:
  struct Outgoing;
  struct Peer;
  struct Stranger;

  void connect(int64_t other) override;
  void enqueue(int64_t rank, const Header& header, Operation& owner, const std::byte* data,
               int64_t bytes) override;
  void drop(Operation& operation) override;

  Peer& peer(int64_t rank);
  void accept_all();
  void read_strangers();
  void adopt(int64_t rank, Socket socket);
  void watch(Peer& peer, bool write);
  void write(Peer& peer);
  void read(Peer& peer);
  void on_header(Peer& peer);
  void on_whole(Peer& peer);
  void lose(Peer& peer, const std::string& problem);

  std::vector<std::string> hosts_;
  uint64_t token_;
  Socket listener_, events_;                  // events_: epoll
  std::vector<int> ports_;                    // [rank] where it listens
  std::vector<std::unique_ptr<Peer>> peers_;  // [rank]; made when needed
  std::vector<Stranger> strangers_;
};

}  // namespace moesaic::tcp
