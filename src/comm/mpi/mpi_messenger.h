#pragma once
// Messages through MPI. A header and what an offer brings along are one message; other data follow their header as messages of
// their own, straight from buffer to buffer, in pieces. MPI keeps the order of messages between two ranks, so the receiver
// of a header knows which data are meant: both ends count, and the count is the data's tag.
#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/messages/messenger.h"

namespace moesaic::mpi {

using messages::Operation;

class MpiMessenger final : public messages::Messenger {
 public:
  explicit MpiMessenger(Control& control);
  ~MpiMessenger() override;

  void progress() override;
  void check_connection(int64_t rank) override;

 private:
  struct Peer;
  struct Passage;

  void connect(int64_t rank) override;
  void enqueue(int64_t rank, const Header& header, Operation& owner, const std::byte* data,
               int64_t bytes) override;
  void drop(Operation& operation) override;

  void receive_head(Peer& peer);
  void start(Passage passage);
  void on_end(Passage passage, int64_t received);
  void on_head(Peer& peer, int64_t bytes);
  static int data_tag(uint64_t count);
  void give_up(const std::string& problem);

  std::vector<std::unique_ptr<Peer>> peers_;  // [rank]; made when needed
  std::vector<Passage> passages_;             // under way
  std::vector<MPI_Request> requests_;         // [passage]
  std::vector<int> done_;                     // numbers of passages, as MPI gives them
  std::vector<MPI_Status> statuses_;
  std::string problem_;  // why MPI is not used any more; empty while it is
  double given_up_at_ = 0;
};

}  // namespace moesaic::mpi
