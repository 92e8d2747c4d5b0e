#pragma once
// What a run is, as plain values: the model, the layout, the training recipe, the data, and what is written.
// Every field states its unit and its default's reason; field_table.cpp binds each to its TOML key ("model.num_layers"),
// and parse, print, --set, --help and the check of unknown keys all follow from that one table.
#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

enum class DeviceKind { cpu, null, cuda, sim };
enum class AttentionStrategy { sp, batch, tp };
enum class ExpertStrategy { ep, tp };
enum class Dispatch { automatic, a2a, ag_rs };      // TOML: "auto", "a2a", "ag_rs"
enum class OverlapMode { automatic, none, parts };  // TOML: "auto", "none", "parts"
enum class Rebuild { none, selective, full };
enum class OverflowPolicy { repeat, drop, stop };
enum class ScoreFunction { softmax, sigmoid, sparsemixer };
enum class BalanceScope { sequence, micro_batch, global };
enum class OptimizerKind { adamw, sgd };
enum class DecaySchedule { constant, cosine, wsd };
enum class ComputeType { f32, bf16 };
enum class ReplayMode { inline_, chaos };                                  // TOML: "inline", "chaos"
enum class Transport { automatic, sockets, mpi };                          // TOML: "auto", "sockets", "mpi"
enum class Launcher { automatic, none, torchrun, openmpi, mpich, slurm };  // TOML: "auto", "none", ...

/// How each token's K experts are chosen and weighted. All of it in FP32.
struct RouterConfig {
  ScoreFunction score = ScoreFunction::softmax;
  bool softmax_after_topk = false;  // softmax over the K chosen logits instead of over all E
  bool renormalize =
      true;  // weights of the K chosen divided by their sum (no effect with softmax_after_topk)
  double weight_scale = 1.0;  // factor on the weights after renormalising (DeepSeek's routed_scaling_factor)
  int64_t num_groups = 1;     // experts form this many equal groups ...
  int64_t num_groups_kept = 1;  // ... and only the best of them may be chosen from
  bool selection_bias = false;  // a bias per expert, added for selection only and moved to balance load
  double bias_rate = 1e-3;      // step of that bias per optimizer step
  double sparsemixer_eps =
      0.01;  // sparsemixer: logits further than twice this below the best, relative, are left out
  bool force_balance = false;  // experts are chosen in turn, whatever their scores: for benchmarks
};

/// LongRoPE (Ding et al., arXiv 2402.13753): each pair of a head has a factor that divides its rotary frequency, and cosines
/// and sines are multiplied by a scale; sequences up to a length have one set, longer ones another.
struct LongRopeConfig {
  int64_t original_len = 0;  // tokens up to which the short set holds, by train.seq_len; 0 = plain RoPE
  std::vector<double> short_factors{}, long_factors{};  // [A / 2]
  double short_scale = 1.0, long_scale = 1.0;
};

/// The shape of a model. Letters as in docs/glossary.md.
struct ModelConfig {
  std::string name = "tiny";
  int64_t num_layers = 2;        // L
  int64_t hidden = 64;           // D
  int64_t num_heads = 4;         // H
  int64_t num_kv_heads = 2;      // G
  int64_t head_dim = 16;         // A
  int64_t expert_ffn = 96;       // F, width of one routed expert
  int64_t num_experts = 8;       // E
  int64_t top_k = 2;             // K
  int64_t vocab = 259;           // V; rows of the embedding and the head
  int64_t shared_ffn = 0;        // width of the shared expert (all shared experts together); 0 = none
  int64_t num_dense_layers = 0;  // leading layers whose FFN is dense
  int64_t dense_ffn = 0;         // width of those
  bool tied_embedding = false;   // head = embedding
  bool qk_norm = false;          // RMSNorm over A on q and k, before RoPE
  bool layer_norm = false;       // LayerNorm with gain and bias in place of every other RMSNorm
  bool attention_bias = false;   // biases on q, k, v and the output projection
  bool head_bias = false;        // a bias on the logits
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  LongRopeConfig long_rope{};
  double init_std = 0.02;  // normal; projections into the residual are scaled by 1/sqrt(2 L)
  double embedding_std =
      0;  // of the embedding; 0 = init_std. At 1 (torchtitan's) a token's own part rules the first residuals,
          // and an untrained router spreads tokens nearly evenly
  RouterConfig router;
};

/// Losses that keep the experts balanced, and capacity.
struct BalanceConfig {
  double aux_coef = 1e-2;  // weight of the load-balance loss, averaged over its scopes, per layer
  BalanceScope scope = BalanceScope::sequence;  // the tokens whose load is balanced
  int64_t expert_groups = 0;  // balance groups of experts (the paper's devices); 0 = each expert alone
  double z_coef = 0.0;        // weight of the mean squared log-sum-exp of the router logits
  double capacity_factor =
      0.0;  // 0 = dropless; else an expert (group) keeps at most factor*T*K/E of its rows per scope
};

/// Who does what. dp*n ranks share a pipeline stage; the experts are spread over e of them.
struct LayoutConfig {
  int64_t pp = 1;
  int64_t dp = 1;
  int64_t n = 1;
  int64_t e = 0;  // 0 = n
  AttentionStrategy attention = AttentionStrategy::sp;
  ExpertStrategy experts = ExpertStrategy::ep;
  Dispatch dispatch = Dispatch::automatic;
  OverlapMode overlap = OverlapMode::automatic;
  Rebuild rebuild = Rebuild::none;
  double rows_factor = 2.0;  // bound on the rows of a rank's experts, in units of T*K; exact (1) when e = 1
  OverflowPolicy on_overflow = OverflowPolicy::repeat;
};

struct OptimConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 3e-3;
  double min_lr = 3e-4;  // end of the decay
  int64_t warmup_steps = 20;
  DecaySchedule decay = DecaySchedule::cosine;
  int64_t decay_steps = 0;  // wsd: length of the final decay; 0 = a fifth of the steps
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double momentum = 0.0;      // sgd
  double weight_decay = 0.1;  // on matrices only
  double clip = 1.0;          // global gradient norm; 0 = off
};

struct TrainConfig {
  int64_t steps = 100;
  double max_seconds = 0;    // 0 = no limit; the run ends, and decays its learning rate, by time instead
  int64_t seq_len = 128;     // S
  int64_t micro_batch = 1;   // B, sequences of one data-parallel replica's micro-batch
  int64_t global_batch = 8;  // sequences of one step, all replicas and micro-batches
  ComputeType compute = ComputeType::f32;
  uint64_t seed = 1234;
  bool deterministic =
      true;  // a repeat is bit-equal; without it attention's backward on GPUs sums in any order
  int64_t max_skipped = 10;          // consecutive steps with NaN or Inf before the run stops
  int64_t eval_every = 0;            // steps; 0 = only at the end
  int64_t eval_sequences = 64;       // held-out sequences per evaluation; 0 = all
  int64_t save_every = 0;            // steps; 0 = only at the end
  int64_t keep_last = 2;             // checkpoints kept
  bool save_async = true;            // false: training waits while a checkpoint is written
  std::vector<int64_t> trace_steps;  // steps whose Chrome trace is written
};

struct DataConfig {
  std::string train;  // path of a token file without its ".bin"/".idx"
  std::string valid;  // the same for held-out text; empty = the last fraction of train
  double valid_fraction = 0.05;
  bool packed_documents = false;  // documents in one sequence do not see each other
  std::string tokenizer =
      "bytes";  // what generate turns text into tokens with: "bytes", or a tokenizer's path
};

struct RunConfig {
  std::string name = "run";  // runs/<name>/
  std::string folder = "runs";
  std::string
      prometheus;  // file for node_exporter's textfile collector (*.prom), rewritten after each step; empty = none
  std::string resume;  // checkpoint to go on from; "auto" = the newest whole one of this run
  std::string init;    // checkpoint or run folder whose weights a new run starts from; empty = random weights
  DeviceKind device = DeviceKind::cpu;
  ReplayMode replay = ReplayMode::inline_;
  uint64_t chaos_seed = 1;
  std::string
      tuning;  // file of timed choices that `moesaic tune` wrote; empty = the libraries' first guesses
  int64_t threads = 0;       // OpenMP threads per CPU rank; 0 = cores / ranks, at least 1
  double comm_timeout = 10;  // seconds that a rank may stand still while others wait; at least 5 median steps
  double save_timeout = 600;  // the same while it writes a checkpoint
  Launcher launcher =
      Launcher::automatic;  // whose variables say which rank this process is; none: ranks are threads
  std::string
      control_address;  // host of rank 0, where ranks are processes; empty = as the launcher's variables say
  int64_t control_port = 0;  // rank 0 listens there; 0 = MASTER_PORT + 1, or a number made from the job's
  Transport transport =
      Transport::automatic;   // of CPU ranks that are processes; auto: MPI if both launcher and build have it
  double join_timeout = 300;  // seconds that processes wait for each other to start
};

struct Config {
  ModelConfig model;
  BalanceConfig balance;
  LayoutConfig layout;
  OptimConfig optim;
  TrainConfig train;
  DataConfig data;
  RunConfig run;
};

}  // namespace moesaic
