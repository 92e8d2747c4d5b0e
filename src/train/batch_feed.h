#pragma once
// Micro-batches from the host to the device: this rank's slice of each sequence, in the layout that the layers read.
#include <memory>
#include <vector>

#include "data/loader.h"
#include "model/stage.h"

namespace moesaic {

class BatchFeed {
 public:
  explicit BatchFeed(Stage& stage);

  /// Enqueues a copy of this rank's part of `batch` (B sequences of its replica) to the batch memory of `place`. The
  /// staging memory `slot` (0 ..) must not be used again before the device has run the copy.
  void send(const Batch& batch, int64_t slot, int64_t place);
  /// Enqueues the step's numbers: 1 / counted, learning rate, bias corrections.
  void send_scalars(int64_t counted, double learning_rate, double correction1, double correction2,
                    bool evaluation);

 private:
  Stage& stage_;
  std::unique_ptr<Plan> copy_, copy_scalars_;
  std::vector<int32_t*> staging_;  // [slot] the device's host memory
  std::byte* scalars_;
};

}  // namespace moesaic
