#pragma once
// A file system in memory that knows what a power loss leaves: the contents and the folder entries that were synced, and of
// what was not, any part. Holds what checkpoints use: files, folders, rename within and between folders, no links.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace moesaic {

class MemoryFiles : public FileSystem {
 public:
  /// What was not synced may be lost: all of it (seed 0), or each change of a folder and each part of a file by itself, as a
  /// random number says. Open files are gone.
  void lose_power(uint64_t seed) {
    const std::lock_guard lock(mutex_);
    std::mt19937_64 random(seed);
    open_.clear();
    forget(*root_, random, seed != 0);
  }

  int open(const std::string& path, int flags, mode_t) override {
    const std::lock_guard lock(mutex_);
    const Place place = find(path);
    if (!place.folder) return error(ENOENT);
    Node* node = place.node();
    if (node == nullptr && (flags & O_CREAT) == 0) return error(ENOENT);
    if (node != nullptr && node->is_folder && (flags & O_ACCMODE) != O_RDONLY) return error(EISDIR);
    if (node != nullptr && !node->is_folder && (flags & O_DIRECTORY) != 0) return error(ENOTDIR);
    if (node == nullptr) place.folder->change({{place.name, std::make_shared<Node>()}});
    const auto target = place.name.empty() ? root_ : place.folder->entries.at(place.name);
    if ((flags & O_TRUNC) != 0) target->data.clear();
    open_[next_] = target;
    return next_++;
  }
  int close(int file) override {
    const std::lock_guard lock(mutex_);
    return open_.erase(file) == 1 ? 0 : error(EBADF);
  }
  ssize_t pread(int file, void* to, size_t bytes, off_t offset) override {
    const std::lock_guard lock(mutex_);
    const auto at = open_.find(file);
    if (at == open_.end()) return error(EBADF);
    if (at->second->is_folder) return error(EISDIR);
    const std::string& data = at->second->data;
    const size_t from = std::min(static_cast<size_t>(offset), data.size());
    return static_cast<ssize_t>(data.copy(static_cast<char*>(to), bytes, from));
  }
  ssize_t write(int file, const void* from, size_t bytes) override {
    const std::lock_guard lock(mutex_);
    const auto at = open_.find(file);
    if (at == open_.end()) return error(EBADF);
    const size_t taken = std::min(bytes, max_write);
    at->second->data.append(static_cast<const char*>(from), taken);
    return static_cast<ssize_t>(taken);
  }
  int truncate(int file, off_t bytes) override {
    const std::lock_guard lock(mutex_);
    open_.at(file)->data.resize(static_cast<size_t>(bytes));
    return 0;
  }
  int fsync(int file) override {
    const std::lock_guard lock(mutex_);
    const auto at = open_.find(file);
    if (at == open_.end()) return error(EBADF);
    Node& node = *at->second;
    node.synced_data = node.data;
    node.synced_entries = node.entries;
    node.changes.clear();
    return 0;
  }
  int fstat(int file, struct stat& info) override {
    const std::lock_guard lock(mutex_);
    const auto at = open_.find(file);
    return at == open_.end() ? error(EBADF) : describe(at->second.get(), info);
  }
  int lock(int) override { return 0; }

  int stat(const std::string& path, struct stat& info) override {
    const std::lock_guard lock(mutex_);
    return describe(find(path).node(), info);
  }
  int lstat(const std::string& path, struct stat& info) override { return stat(path, info); }
  int rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(mutex_);
    const Place a = find(from), b = find(to);
    if (a.node() == nullptr || !b.folder) return error(ENOENT);
    if (b.node() != nullptr && b.node()->is_folder != a.node()->is_folder)
      return error(b.node()->is_folder ? EISDIR : ENOTDIR);
    if (b.node() != nullptr && !b.node()->entries.empty()) return error(ENOTEMPTY);
    const auto node = a.folder->entries.at(a.name);
    if (a.folder == b.folder) {
      a.folder->change({{a.name, nullptr}, {b.name, node}});  // one change: both or neither
    } else {
      b.folder->change({{b.name, node}});
      a.folder->change({{a.name, nullptr}});
    }
    return 0;
  }
  int unlink(const std::string& path) override { return remove(path, false); }
  int rmdir(const std::string& path) override { return remove(path, true); }
  int mkdir(const std::string& path, mode_t) override {
    const std::lock_guard lock(mutex_);
    const Place place = find(path);
    if (!place.folder) return error(ENOENT);
    if (place.node() != nullptr) return error(EEXIST);
    const auto folder = std::make_shared<Node>();
    folder->is_folder = true;
    place.folder->change({{place.name, folder}});
    return 0;
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    const std::lock_guard lock(mutex_);
    const Node* node = find(path).node();
    if (node == nullptr) return error(ENOENT);
    if (!node->is_folder) return error(ENOTDIR);
    for (const auto& [name, child] : node->entries) names.push_back(name);
    return 0;
  }

  /// Bytes that one call of write() takes at most.
  size_t max_write = ~size_t{0};

 private:
  struct Node;
  using Entries = std::map<std::string, std::shared_ptr<Node>>;
  struct Node {
    bool is_folder = false;
    std::string data, synced_data;
    Entries entries, synced_entries;
    std::vector<Entries> changes;  // since the last sync; null: removed

    static void apply(const Entries& change, Entries& to) {
      for (const auto& [name, node] : change) {
        if (node)
          to[name] = node;
        else
          to.erase(name);
      }
    }
    void change(const Entries& one) {
      apply(one, entries);
      changes.push_back(one);
    }
  };
  /// Where a path leads: null when a folder on the way is missing. The root is its own folder, with an empty name.
  struct Place {
    Node* folder = nullptr;
    std::string name;
    Node* node() const {
      if (folder == nullptr || name.empty()) return folder;
      const auto at = folder->entries.find(name);
      return at == folder->entries.end() ? nullptr : at->second.get();
    }
  };

  Place find(const std::string& path) const {
    Place place{root_.get(), ""};
    for (size_t at = 0; at < path.size();) {
      const size_t end = std::min(path.find('/', at), path.size());
      if (end > at) {
        Node* folder = place.node();
        if (folder == nullptr || !folder->is_folder) return {};
        place = {folder, path.substr(at, end - at)};
      }
      at = end + 1;
    }
    return place;
  }
  static int error(int code) {
    errno = code;
    return -1;
  }
  static int describe(const Node* node, struct stat& info) {
    if (node == nullptr) return error(ENOENT);
    info = {};
    info.st_mode = node->is_folder ? S_IFDIR : S_IFREG;
    info.st_size = static_cast<off_t>(node->data.size());
    return 0;
  }
  int remove(const std::string& path, bool folder) {
    const std::lock_guard lock(mutex_);
    const Place place = find(path);
    const Node* node = place.node();
    if (node == nullptr) return error(ENOENT);
    if (node->is_folder != folder) return error(folder ? ENOTDIR : EISDIR);
    if (!node->entries.empty()) return error(ENOTEMPTY);
    place.folder->change({{place.name, nullptr}});
    return 0;
  }

  static void forget(Node& node, std::mt19937_64& random, bool in_part) {
    if (!node.is_folder) {
      if (node.data != node.synced_data) node.data = in_part ? mix(node, random) : node.synced_data;
      node.synced_data = node.data;
      return;
    }
    node.entries = node.synced_entries;
    for (const Entries& change : node.changes)
      if (in_part && random() % 2 == 0) Node::apply(change, node.entries);
    node.synced_entries = node.entries;
    node.changes.clear();
    for (const auto& [name, child] : node.entries) forget(*child, random, in_part);
  }
  /// Any length up to the longer of both states, and in each small block the old bytes, the new ones, or zeros.
  static std::string mix(const Node& node, std::mt19937_64& random) {
    constexpr size_t kBlock = 64;
    std::string bytes(random() % (std::max(node.data.size(), node.synced_data.size()) + 1), '\0');
    if (random() % 2 == 0) bytes.resize(node.data.size());  // as a disk that keeps sizes before contents
    for (size_t at = 0; at < bytes.size(); at += kBlock) {
      const uint64_t which = random() % 3;
      if (which == 2) continue;
      const std::string& from = which == 0 ? node.synced_data : node.data;
      if (at < from.size()) from.copy(bytes.data() + at, std::min(kBlock, bytes.size() - at), at);
    }
    return bytes;
  }

  std::mutex mutex_;
  std::shared_ptr<Node> root_ = [] {
    auto node = std::make_shared<Node>();
    node->is_folder = true;
    return node;
  }();
  std::map<int, std::shared_ptr<Node>> open_;
  int next_ = 1000;
};

}  // namespace moesaic
