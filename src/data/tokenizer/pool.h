#pragma once
// Working memory that threads take turns with: as many objects as were ever in use at once.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace moesaic {

template <class T>
class Pool {
 public:
  /// An object that is the caller's until the lease ends; its content is whatever the last user left.
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.idle_.push_back(std::move(object_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T* operator->() const { return object_.get(); }
    T& operator*() const { return *object_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> object_;
  };

  Lease take() {
    std::unique_ptr<T> object;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        object = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (!object) object = std::make_unique<T>();
    return {*this, std::move(object)};
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace moesaic
