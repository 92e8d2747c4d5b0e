#pragma once
// The connections of a rank that is a process with the ranks it shares groups with: one each, made when a group first needs
// it (the higher rank connects), shared by all groups. Nothing here waits: progress() moves what can be moved at once, for
// all collectives that are under way, so that any order of asking them is right. Used by the rank's working thread only.
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/tcp/socket.h"
#include "comm/tcp/tcp_operation.h"

namespace moesaic::tcp {

/// What the mesh needs to know of its job.
struct Job {
  Control& control;
  std::function<std::string(int64_t rank)> describe;  // "rank 2 (step 5, last operation: all_gather tokens)"
  std::vector<std::string> hosts;                     // of the ranks, as this one reaches them
  uint64_t token = 0;                                 // known to this job's ranks only
};

class TcpMesh : public std::enable_shared_from_this<TcpMesh> {
 public:
  /// Called by all ranks together: they tell each other where they listen.
  explicit TcpMesh(Job job);
  ~TcpMesh();

  /// This rank's end of the group of these global ranks (in order; must contain this rank). Every member calls it, in the
  /// same order; a second call with the same ranks gives a second, independent communicator.
  std::unique_ptr<Communicator> communicator(const std::vector<int64_t>& ranks);

  // For operations.
  int64_t rank() const { return job_.control.rank(); }
  const Job& job() const { return job_; }
  /// Makes the offers of an operation, and looks up those that came before it.
  void post(TcpOperation& operation, const std::vector<int64_t>& ranks, const Offer& offer,
            const std::vector<Part>& parts);
  void send_data(TcpOperation& operation, int64_t rank, const std::byte* data, int64_t bytes);
  /// The operation will not be asked again. When it was not complete, its connections are of no use any more.
  void forget(TcpOperation& operation);
  void progress();
  /// Bytes that have passed any of this rank's connections: while it grows, nothing stands still.
  uint64_t bytes_moved() const { return bytes_moved_; }
  /// Ends the job when the connection to a rank is gone, and the control channel had the time to say why.
  void check_connection(int64_t rank);

 private:
  struct Header;
  struct Outgoing;
  struct Peer;
  struct Stranger;

  Peer& peer(int64_t rank);
  void connect(int64_t other);
  void accept_all();
  void read_strangers();
  void adopt(int64_t rank, Socket socket);
  void watch(Peer& peer, bool write);
  void enqueue(int64_t rank, const Header& header, TcpOperation& owner, const std::byte* data, int64_t bytes);
  void write(Peer& peer);
  void read(Peer& peer);
  void on_header(Peer& peer);
  void on_whole(Peer& peer);
  void lose(Peer& peer, const std::string& problem);
  [[noreturn]] void abort(const std::string& message);
  OperationKey key_of(const Header& header, int64_t from) const;

  Job job_;
  Socket listener_, events_;                  // events_: epoll
  std::vector<int> ports_;                    // [rank] where it listens
  std::vector<std::unique_ptr<Peer>> peers_;  // [rank]; made when needed
  std::vector<Stranger> strangers_;
  std::map<OperationKey, TcpOperation*> posted_;
  uint64_t bytes_moved_ = 0;
  std::map<std::vector<int64_t>, uint64_t> num_groups_;  // of these ranks, made so far
};

std::unique_ptr<Communicator> make_tcp_communicator(std::shared_ptr<TcpMesh> mesh, uint64_t group,
                                                    std::vector<int64_t> ranks, size_t me);

}  // namespace moesaic::tcp
