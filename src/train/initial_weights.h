#pragma once
// Weights of a checkpoint without anything else of it: how a run starts from a model, and what evaluation needs.
#include <string>

#include "checkpoint/reader.h"
#include "train/session.h"

namespace moesaic {

/// Fills the session's weights and, where the model has them, router biases, one tensor at a time. The checkpoint may be of
/// another compute type: BF16 becomes FP32 exactly, FP32 is rounded to BF16, and a BF16 session that trains gets the FP32
/// values as its masters. Optimizer state is left as it is. Called by every rank with its own reader. Throws IoError for a
/// tensor that is missing, of another shape, or not part of the session's model.
void load_weights(Session& session, const CheckpointReader& reader);

/// "model.rope_theta is 10000.0 here and 1000000.0 there", one for each key of the model in which the session and the
/// checkpoint's run differ, names and first values apart.
std::vector<std::string> model_differences(const Config& here, const Config& there);

}  // namespace moesaic
