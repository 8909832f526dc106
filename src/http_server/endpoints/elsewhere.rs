//! The table of what other servers of this kind have and this one does not: 501 with the reason, never 404.

/// A path of another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elsewhere {
    /// The path there; `{..}` stands for one segment.
    pub path: &'static str,
    /// Why it is not here, and what is instead.
    pub why: &'static str,
}

const fn no(path: &'static str, why: &'static str) -> Elsewhere {
    Elsewhere { path, why }
}

const RANKS: &str = "Reward and ranking models are not served.";
const RESPONSES: &str = "The Responses API is not served; use /v1/chat/completions.";
const ANTHROPIC: &str = "Anthropic's API is not served; use /v1/chat/completions.";
const OLLAMA: &str = "Ollama's API is not served; use /v1/chat/completions.";
const CLOUD: &str = "This cloud's envelope is not served; use /v1/chat/completions.";
const AUDIO: &str = "Audio is not served.";
const DECISIONS: &str = "Decision models are not served.";
const SESSIONS: &str = "There are no sessions: each request brings its whole prompt.";
const LORA: &str = "Adapters are not served: start a server with the merged model.";
const HICACHE: &str = "There is no hierarchical cache.";
const CORPORA: &str = "There is no speculative decoding, and so no corpus for it.";
const WEIGHTS: &str = "Weights do not change while a server runs: start another with the new model.";
const MEMORY: &str = "Memory is held as long as the server runs.";
const PROFILE: &str = "There is no profiler inside: use perf on the engine's process, and the traces.";
const EXPERTS: &str = "Models with experts are not served.";
const PYTHON: &str = "There is no garbage collector.";
const SCALE: &str = "One server is one engine: run more of them behind a gateway.";
const INTERNALS: &str = "Flags do not change while a server runs.";
const SLOW: &str = "Faults on purpose are switched on at /debug/fault, with --enable-drills.";

/// Every path of theirs that is not here.
pub const ELSEWHERE: &[Elsewhere] = &[
    no("/classify", RANKS),
    no("/v1/classify", RANKS),
    no("/v1/score", RANKS),
    no("/v1/rerank", RANKS),
    no("/v1/decisions", DECISIONS),
    no("/v1/systemone", DECISIONS),
    no("/v1/responses", RESPONSES),
    no("/v1/responses/{id}", RESPONSES),
    no("/v1/responses/{id}/cancel", RESPONSES),
    no("/v1/audio/transcriptions", AUDIO),
    no("/v1/realtime", AUDIO),
    no("/v1/messages", ANTHROPIC),
    no("/v1/messages/count_tokens", ANTHROPIC),
    no("/api/chat", OLLAMA),
    no("/api/generate", OLLAMA),
    no("/api/tags", OLLAMA),
    no("/api/show", OLLAMA),
    no("/invocations", CLOUD),
    no("/vertex_generate", CLOUD),
    no("/open_session", SESSIONS),
    no("/close_session", SESSIONS),
    no("/load_lora_adapter", LORA),
    no("/load_lora_adapter_from_tensors", LORA),
    no("/unload_lora_adapter", LORA),
    no("/hicache/storage-backend", HICACHE),
    no("/hicache/storage-backend/clear", HICACHE),
    no("/clear_hicache_storage_backend", HICACHE),
    no("/get_hicache_l3_cache_layout", HICACHE),
    no("/add_external_corpus", CORPORA),
    no("/remove_external_corpus", CORPORA),
    no("/list_external_corpora", CORPORA),
    no("/update_weights_from_disk", WEIGHTS),
    no("/update_weights_from_tensor", WEIGHTS),
    no("/update_weights_from_distributed", WEIGHTS),
    no("/update_weights_from_ipc", WEIGHTS),
    no("/begin_weight_update", WEIGHTS),
    no("/end_weight_update", WEIGHTS),
    no("/init_weights_update_group", WEIGHTS),
    no("/destroy_weights_update_group", WEIGHTS),
    no("/update_weight_version", WEIGHTS),
    no("/get_weight_version", WEIGHTS),
    no("/get_weights_by_name", WEIGHTS),
    no("/weights_checker", WEIGHTS),
    no("/init_weights_send_group_for_remote_instance", WEIGHTS),
    no("/send_weights_to_remote_instance", WEIGHTS),
    no("/remote_instance_transfer_engine_info", WEIGHTS),
    no("/release_memory_occupation", MEMORY),
    no("/resume_memory_occupation", MEMORY),
    no("/start_profile", PROFILE),
    no("/stop_profile", PROFILE),
    no("/dumper/{method}", PROFILE),
    no("/freeze_gc", PYTHON),
    no("/set_internal_state", INTERNALS),
    no("/slow_down", SLOW),
    no("/start_expert_distribution_record", EXPERTS),
    no("/stop_expert_distribution_record", EXPERTS),
    no("/dump_expert_distribution_record", EXPERTS),
    no("/pd_role_switch", SCALE),
    no("/scale_elastic_ep", SCALE),
    no("/is_scaling_elastic_ep", SCALE),
    no("/get_load", "Use /v1/loads."),
];
