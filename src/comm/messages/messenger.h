#pragma once
// What carries the collectives of ranks that are processes: offers and data between this rank and others, over sockets
// (TcpMesh) or MPI (mpi/). One per rank, shared by all groups. Nothing here waits: progress() moves what can be moved at once,
// for all collectives that are under way, so that any order of asking them is right. Used by the rank's working thread only.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/messages/operation.h"

namespace moesaic::messages {

class Messenger : public std::enable_shared_from_this<Messenger> {
 public:
  /// `control` must outlive it.
  explicit Messenger(Control& control);
  virtual ~Messenger() = default;
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  /// This rank's end of the group of these global ranks (in order; must contain this rank). Every member calls it, in the
  /// same order; a second call with the same ranks gives a second, independent communicator.
  std::unique_ptr<Communicator> communicator(const std::vector<int64_t>& ranks);

  /// Connects this rank to the others of such a group, and numbers it: what communicator() does first.
  uint64_t open_group(const std::vector<int64_t>& ranks);

  // For operations.
  int64_t rank() const { return control_.rank(); }
  Control& control() const { return control_; }
  /// Makes the offers of an operation, and looks up those that came before it.
  void post(Operation& operation, const std::vector<int64_t>& ranks, const Offer& offer,
            const std::vector<Part>& parts);
  void send_data(Operation& operation, int64_t rank, const std::byte* data, int64_t bytes);
  /// The operation will not be asked again. When it was not complete, its connections are of no use any more.
  void forget(Operation& operation);
  virtual void progress() = 0;
  /// Bytes that have passed between this rank and any other: while it grows, nothing stands still.
  uint64_t bytes_moved() const { return bytes_moved_; }
  /// Ends the job when the connection to a rank is gone, and the control channel had the time to say why.
  virtual void check_connection(int64_t rank) = 0;

 protected:
  /// Before each offer, and before data.
  struct Header {
    enum Type : uint32_t { offer, data } type{};
    OperationKey::Channel channel{};  // as its sender sees it
    uint64_t group = 0, sequence = 0;
    int64_t bytes = 0;     // offer: of the collective; data: that follow
    int64_t want = 0;      // offer: bytes that its sender wants
    int64_t attached = 0;  // offer: bytes that follow; -1: they have to be asked for
    int32_t kind = 0, root = -1;
  };

  int64_t num_ranks() const { return control_.size(); }
  /// A group needs this rank.
  virtual void connect(int64_t rank) = 0;
  /// Sends a header and the bytes that follow it, after all that was enqueued for this rank before. `owner` is told of it
  /// (on_queued) and, when the bytes are free again, of that (on_sent).
  virtual void enqueue(int64_t rank, const Header& header, Operation& owner, const std::byte* data,
                       int64_t bytes) = 0;
  /// Lets go of what is on its way from or to an operation's buffers.
  virtual void drop(Operation& operation) = 0;

  // What has come in. `from`: its sender.
  /// How many bytes an offer brings along.
  int64_t attached_bytes(const Header& offer, int64_t from);
  void on_offer(const Header& offer, int64_t from, std::optional<Bytes> attached);
  /// Whose data follow this header.
  Operation& destination(const Header& data, int64_t from);

  /// Ends the job: `from` has sent what no rank of this program sends.
  [[noreturn]] void refuse(int64_t from);
  [[noreturn]] void abort(const std::string& message);
  void count_moved(int64_t bytes) { bytes_moved_ += static_cast<uint64_t>(bytes); }

 private:
  /// Offers of a rank for collectives that this one has not come to yet.
  struct Early {
    struct Offered {
      Header header;
      std::optional<Bytes> attached;
    };
    std::map<OperationKey, Offered> offers;
    size_t bytes = 0;
  };

  OperationKey key_of(const Header& header, int64_t from) const;

  Control& control_;
  std::vector<Early> early_;  // [rank]
  std::map<OperationKey, Operation*> posted_;
  uint64_t bytes_moved_ = 0;
  std::map<std::vector<int64_t>, uint64_t> num_groups_;  // of these ranks, made so far
};

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Messenger> messenger, uint64_t group,
                                                std::vector<int64_t> ranks, size_t me);

}  // namespace moesaic::messages
