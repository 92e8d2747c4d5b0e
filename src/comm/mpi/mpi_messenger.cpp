#include "comm/mpi/mpi_messenger.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "base/error.h"

namespace moesaic::mpi {
namespace {

constexpr int kHeadTag = 0;
constexpr int kDataTags = 32000;      // 1 and up; MPI promises 32767
constexpr int64_t kPiece = 16 << 20;  // of data: an int counts it, and each that arrives is a sign of life
constexpr int kRoundsPerTurn = 8;     // of asking MPI what is done
constexpr double kSecondsForControl = 1;  // to say why MPI fails

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<size_t>(length)};
}

}  // namespace

/// What is under way between this rank and another: a head (a header and what an offer brings), or data.
struct MpiMessenger::Passage {
  bool in = false;
  int tag = kHeadTag;
  int64_t rank = 0;
  Operation* operation = nullptr;  // whose; none for a head that comes in
  std::byte* at = nullptr;
  int64_t left = 0;
  messages::Bytes head;  // what `at` points into when a head goes out

  int64_t piece() const { return std::min(left, kPiece); }
};

struct MpiMessenger::Peer {
  explicit Peer(int64_t number) : rank(number) {}
  const int64_t rank;
  messages::Bytes head = messages::Bytes(sizeof(Header) + messages::kMostAttached);  // that comes in
  uint64_t num_in = 0, num_out = 0;                                                  // data so far
};

MpiMessenger::MpiMessenger(Control& control) : Messenger(control), peers_(static_cast<size_t>(num_ranks())) {}

/// After a failure nobody may still answer, so MPI is left as it is.
MpiMessenger::~MpiMessenger() {
  if (!problem_.empty() || std::uncaught_exceptions() > 0) return;
  for (MPI_Request& request : requests_) {  // for heads that will not come
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

void MpiMessenger::connect(int64_t rank) {
  auto& peer = peers_[static_cast<size_t>(rank)];
  if (peer) return;
  peer = std::make_unique<Peer>(rank);
  receive_head(*peer);
}

void MpiMessenger::receive_head(Peer& peer) {
  start({.in = true,
         .rank = peer.rank,
         .at = peer.head.data(),
         .left = static_cast<int64_t>(peer.head.size())});
}

void MpiMessenger::enqueue(int64_t rank, const Header& header, Operation& owner, const std::byte* data,
                           int64_t bytes) {
  const int64_t attached = header.type == Header::offer ? bytes : 0;
  messages::Bytes head(sizeof header + static_cast<size_t>(attached));
  std::memcpy(head.data(), &header, sizeof header);
  if (attached > 0) std::memcpy(head.data() + sizeof header, data, static_cast<size_t>(attached));
  owner.on_queued();
  Passage passage{.rank = rank, .operation = &owner, .left = static_cast<int64_t>(head.size())};
  passage.at = head.data();
  passage.head = std::move(head);
  start(std::move(passage));
  if (header.type == Header::offer) return;
  owner.on_queued();
  uint64_t& count = peers_[static_cast<size_t>(rank)]->num_out;
  start({.tag = data_tag(count++),
         .rank = rank,
         .operation = &owner,
         .at = const_cast<std::byte*>(data),
         .left = bytes});
}

void MpiMessenger::start(Passage passage) {
  if (!problem_.empty()) return;  // the operation stays incomplete, which check_connection() sees
  const auto bytes = static_cast<int>(passage.piece()), rank = static_cast<int>(passage.rank);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = passage.in
                       ? MPI_Irecv(passage.at, bytes, MPI_BYTE, rank, passage.tag, MPI_COMM_WORLD, &request)
                       : MPI_Isend(passage.at, bytes, MPI_BYTE, rank, passage.tag, MPI_COMM_WORLD, &request);
  if (code != MPI_SUCCESS) return give_up(text_of(code));
  passages_.push_back(std::move(passage));
  requests_.push_back(request);
}

void MpiMessenger::progress() {
  for (int round = 0; round < kRoundsPerTurn && problem_.empty(); ++round) {
    done_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                                  statuses_.data());
    if (code != MPI_SUCCESS) return give_up(text_of(code));
    if (count == MPI_UNDEFINED || count == 0) return;
    // All are taken off the list before any is looked at: that begins new ones.
    std::vector<std::pair<Passage, int>> ended;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      int bytes = 0;
      MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes);
      ended.emplace_back(std::move(passages_[static_cast<size_t>(done_[i])]), bytes);
      passages_[static_cast<size_t>(done_[i])].left = -1;
    }
    std::erase_if(passages_, [](const Passage& p) { return p.left < 0; });
    std::erase(requests_, MPI_REQUEST_NULL);
    for (auto& [passage, bytes] : ended) on_end(std::move(passage), bytes);
  }
}

/// `received`: bytes, when it comes in.
void MpiMessenger::on_end(Passage passage, int64_t received) {
  if (passage.operation == nullptr) return on_head(*peers_[static_cast<size_t>(passage.rank)], received);
  const int64_t bytes = passage.piece();
  count_moved(bytes);
  passage.at += bytes;
  passage.left -= bytes;
  if (passage.left > 0) return start(std::move(passage));
  if (passage.in)
    passage.operation->on_received(passage.rank);
  else
    passage.operation->on_sent();
}

void MpiMessenger::on_head(Peer& peer, int64_t bytes) {
  count_moved(bytes);
  Header header;
  const int64_t after = bytes - static_cast<int64_t>(sizeof header);
  if (after < 0) refuse(peer.rank);
  std::memcpy(&header, peer.head.data(), sizeof header);
  if (header.type == Header::offer) {
    if (attached_bytes(header, peer.rank) != after) refuse(peer.rank);
    std::optional<messages::Bytes> attached;
    const auto first = peer.head.begin() + sizeof header;
    if (header.attached >= 0) attached.emplace(first, first + after);
    on_offer(header, peer.rank, std::move(attached));
  } else {
    Operation& operation = destination(header, peer.rank);
    start({.in = true,
           .tag = data_tag(peer.num_in++),
           .rank = peer.rank,
           .operation = &operation,
           .at = operation.place_for(peer.rank),
           .left = header.bytes});
  }
  receive_head(peer);
}

int MpiMessenger::data_tag(uint64_t count) {
  return kHeadTag + 1 + static_cast<int>(count % kDataTags);
}

/// MPI may not touch an operation's buffers any more, and cannot be told so: it is not called again.
void MpiMessenger::drop(Operation& operation) {
  for (Passage& passage : passages_) {
    if (passage.operation != &operation) continue;
    passage.operation = nullptr;
    give_up("this rank left a collective that was under way");
  }
}

void MpiMessenger::give_up(const std::string& problem) {
  if (!problem_.empty()) return;
  problem_ = problem;
  given_up_at_ = now();
}

void MpiMessenger::check_connection(int64_t rank) {
  if (!problem_.empty() && now() - given_up_at_ > kSecondsForControl)
    abort(fmt::format("{} does not reach {} through MPI any more: {}", this->control().describe(this->rank()),
                      this->control().describe(rank), problem_));
}

}  // namespace moesaic::mpi
