#include "hf/tensor_list.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "model/parameters.h"

namespace moesaic {

std::vector<NamedTensor> list_tensors(const Family& family, const ModelConfig& model) {
  const ParameterTable table =
      make_parameters(model, Mesh(LayoutConfig{}), 0, ExpertPlacement::contiguous(model.num_experts, 1));
  std::vector<NamedTensor> tensors;
  tensors.reserve(table.rows().size());
  for (const ParameterRow& row : table.rows()) {
    NamedTensor tensor{row.name, their_name(family, row.name), {}};
    for (int i = 0; i < row.shape.num_dims(); ++i) tensor.shape.push_back(row.shape[i]);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

NewFolder::NewFolder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  unfinished_ = path_ + ".tmp";
  require<ConfigError>(!path_.empty(), "expected a folder to write to, found an empty name");
  require<ConfigError>(!path_exists(path_), "{} is there already: name a new folder, or remove it", path_);
  remove_tree(unfinished_);
  make_folders(unfinished_);
}

NewFolder::~NewFolder() {
  if (committed_) return;
  try {
    remove_tree(unfinished_);
  } catch (const Error&) {  // nothing to add to the error that led here
  }
}

void NewFolder::commit() {
  rename_path(unfinished_, path_);
  committed_ = true;
}

std::string first_few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace moesaic
