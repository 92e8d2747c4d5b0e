#include "comm/meeting/shared_boards.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/fingerprint.h"
#include "comm/progress_watch.h"

namespace moesaic {
namespace {

constexpr int64_t kRegionBytes = int64_t{256}
                                 << 20;  // of addresses: pages that nobody touches take no memory
constexpr uint64_t kMostGroups = 1000;
constexpr const char* kMemoryName = "moesaic boards";

/// Closes itself.
struct Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

std::byte* map_memory(int descriptor) {
  void* memory =
      ::mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  require<CommError>(memory != MAP_FAILED, "shared memory could not be mapped: {}", std::strerror(errno));
  return static_cast<std::byte*>(memory);
}

/// The memory of another process; CommError unless it is of our kind.
std::byte* open_memory(int64_t rank, int64_t process, int number) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
  const Descriptor opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const int problem = errno;
  std::array<char, 256> target{};
  struct stat info {};
  const bool right = opened.number >= 0 && ::readlink(path.c_str(), target.data(), target.size() - 1) > 0 &&
                     std::string(target.data()).find(kMemoryName) != std::string::npos &&
                     ::fstat(opened.number, &info) == 0 && info.st_size == kRegionBytes;
  require<CommError>(
      right,
      "rank {} runs on this machine, but its shared memory ({}) could not be opened ({}); start the "
      "ranks of a machine as one user and in one container",
      rank, path, opened.number < 0 ? std::strerror(problem) : "it is something else");
  return map_memory(opened.number);
}

}  // namespace

/// At the beginning of each region: where the boards of which group lie.
struct SharedBoards::Header {
  struct Entry {
    uint64_t name;
    int64_t offset;
  };
  std::atomic<uint64_t> count;
  int64_t used;  // bytes
  std::array<Entry, kMostGroups> entries;
};

SharedBoards::Header& SharedBoards::header(int64_t rank) const {
  return *reinterpret_cast<Header*>(regions_[static_cast<size_t>(rank)]);
}

SharedBoards::SharedBoards(Control& control, const std::string& machine) : control_(control) {
  const Descriptor mine(::memfd_create(kMemoryName, MFD_CLOEXEC));
  require<CommError>(mine.number >= 0 && ::ftruncate(mine.number, kRegionBytes) == 0,
                     "shared memory could not be made: {}", std::strerror(errno));
  const auto everyone = control.all_gather(fmt::format("{} {} {}", ::getpid(), mine.number, machine));
  regions_.assign(everyone.size(), nullptr);
  const auto me = static_cast<size_t>(control.rank());
  regions_[me] = map_memory(mine.number);
  header(control.rank()).used = round_up(static_cast<int64_t>(sizeof(Header)), 4096);
  for (size_t r = 0; r < everyone.size(); ++r) {
    std::istringstream words(everyone[r]);
    int64_t process = 0;
    int number = -1;
    std::string its_machine;
    words >> process >> number;
    std::getline(words >> std::ws, its_machine);
    if (its_machine != machine) continue;
    neighbours_.push_back(static_cast<int64_t>(r));
    if (r != me) regions_[r] = open_memory(static_cast<int64_t>(r), process, number);
  }
  control.barrier();  // all have opened it: the descriptor can go
}

SharedBoards::~SharedBoards() {
  for (std::byte* region : regions_)
    if (region != nullptr) ::munmap(region, kRegionBytes);
}

bool SharedBoards::reaches(const std::vector<int64_t>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int64_t rank) { return regions_[static_cast<size_t>(rank)] != nullptr; });
}

std::byte* SharedBoards::find(int64_t rank, uint64_t name, int64_t size) {
  const Header& at = header(rank);
  const uint64_t count = std::min(at.count.load(std::memory_order_acquire), kMostGroups);
  for (uint64_t i = 0; i < count; ++i)
    if (at.entries[i].name == name) {
      const int64_t offset = at.entries[i].offset;
      MOESAIC_CHECK(offset > 0 && offset <= kRegionBytes - MemberBoard::bytes(size));
      return regions_[static_cast<size_t>(rank)] + offset;
    }
  return nullptr;
}

std::vector<MemberBoard> SharedBoards::group(const std::vector<int64_t>& ranks) {
  MOESAIC_CHECK(reaches(ranks) && std::count(ranks.begin(), ranks.end(), control_.rank()) == 1);
  std::string text = std::to_string(num_groups_[ranks]++);
  for (const int64_t r : ranks) text += fmt::format(",{}", r);
  const uint64_t name = fingerprint(text);
  const auto size = static_cast<int64_t>(ranks.size());

  Header& mine = header(control_.rank());
  const uint64_t number = mine.count.load(std::memory_order_relaxed);
  const int64_t offset = mine.used;
  mine.used = round_up(offset + MemberBoard::bytes(size), 4096);
  require<CommError>(number < kMostGroups && mine.used <= kRegionBytes,
                     "{} groups of processes of one machine are more than there is room for", number + 1);
  MemberBoard(regions_[static_cast<size_t>(control_.rank())] + offset, size, true);
  mine.entries[number] = {name, offset};
  mine.count.store(number + 1, std::memory_order_release);

  std::vector<MemberBoard> boards;
  for (const int64_t r : ranks) {
    std::byte* found = nullptr;
    bool waited = false;
    while ((found = find(r, name, size)) == nullptr) {
      control_.check();
      control_.set_waiting(fmt::format("{} to make a group", name_ranks({r})));
      waited = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (waited) control_.set_waiting("");
    boards.emplace_back(found, size, false);
  }
  return boards;
}

}  // namespace moesaic
