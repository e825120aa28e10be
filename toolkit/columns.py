"""Columns of everything that is written as a table: name, type, what a null means, and where the value comes from.

They stand here and nowhere else; the tables in ARCHITECTURE.md are held against them by a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column: Arrow type, what a null means ("" = never null), and where the value comes from."""

    name: str
    type: pa.DataType
    null_means: str
    source: str

    def field(self) -> pa.Field:
        """The Arrow field; a column that is never null is declared so."""
        return pa.field(self.name, self.type, nullable=bool(self.null_means))


_IDENTITY: tuple[Column, ...] = (
    Column("row_key", pa.string(), "", "sha256 of what identifies the request (records.row_key_of)"),
    Column("sample_id", pa.string(), "", "the prompt's id, or the imported line's"),
    Column("turn", pa.int32(), "", "which generated turn of the conversation, from 0"),
    Column("sample_index", pa.int32(), "", "which answer to the same prompt, from 0"),
    Column("probe", pa.bool_(), "", "true: a second answer for comparison, never merged"),
    Column("source", pa.string(), "", "who produced it: sglang, vllm, openrouter, or the endpoint's name"),
    Column("origin", pa.string(), "", "how it got here: generate, import, rebuild"),
    Column("provider", pa.string(), "the source has no providers", "reply: display name of who answered"),
    Column("model", pa.string(), "the reply named none and none was assumed", "reply"),
    Column("mode", pa.string(), "", "a mode of the contract: asked for, or assumed (see notes)"),
    Column("contract", pa.string(), "", "name of the contract that the ids were rebuilt under"),
    Column("contract_sha256", pa.string(), "", "sha256 of that contract file"),
)

_PROVENANCE: tuple[Column, ...] = (
    Column("finish_reason", pa.string(), "absent in the reply", "reply, as received"),
    Column("native_finish_reason", pa.string(), "absent in the reply", "reply, as received"),
    Column("prompt_tokens", pa.int32(), "not reported", "reply: usage"),
    Column("completion_tokens", pa.int32(), "not reported", "reply: usage"),
    Column("reasoning_tokens", pa.int32(), "not reported", "reply: usage details"),
    Column("cost_usd", pa.float64(), "not reported", "reply: usage.cost, US dollars"),
    Column("request_id", pa.string(), "absent in the reply", "reply: id"),
    Column("created", pa.int64(), "absent in the reply", "reply: seconds since 1970"),
    Column("latency_s", pa.float64(), "not measured (imports)", "our clock: request sent to reply whole"),
    Column("streamed", pa.bool_(), "unknown (imports)", "how the reply came"),
)

SHARD_COLUMNS: tuple[Column, ...] = (
    *_IDENTITY,
    Column("messages", pa.string(), "the prompt is not known", "JSON: the messages as sent, tool ids rewritten"),
    Column("tools", pa.string(), "no tools were declared", "JSON: the tools as sent"),
    Column("payload", pa.string(), "", "JSON: request and raw reply; enough to rebuild without asking again"),
    Column(
        "reasoning", pa.string(), "absent or null in the reply", "reply; parts in the wrong place moved (see notes)"
    ),
    Column("content", pa.string(), "absent or null in the reply", "reply; parts in the wrong place moved (see notes)"),
    Column("tool_calls", pa.string(), "no call", "JSON list of {id, name, arguments}; arguments as received"),
    *_PROVENANCE,
    Column("output_ids", pa.list_(pa.int32()), "no rule gives ids: rebuild_status says why", "see ids_source"),
    Column("ids_source", pa.string(), "output_ids is null", "engine, given, logprobs, rebuilt"),
    Column(
        "prompt_ids", pa.list_(pa.int32()), "the prompt is not known or cannot be rendered", "see prompt_ids_source"
    ),
    Column("prompt_ids_source", pa.string(), "prompt_ids is null", "engine, given, rendered"),
    Column("rebuild_status", pa.string(), "", "complete, truncated, ambiguous, answer_missing, reasoning_missing"),
    Column("notes", pa.list_(pa.string()), "", "codes of everything the rules noticed or assumed"),
)

HEALTH_COLUMNS: tuple[Column, ...] = (
    Column(
        "repeated_share",
        pa.float64(),
        "text health is off, or fewer than 4 output_ids",
        "4-grams of output_ids that stood before in the row, as a share of all",
    ),
    Column(
        "loop_ids",
        pa.int32(),
        "text health is off, or no output_ids",
        "ids of the longest stretch that repeats 1 to 32 ids at least 3 times, in whole cycles; 0: none",
    ),
    Column("loop_period", pa.int32(), "text health is off, or no loop", "ids of one cycle of that stretch"),
    Column("loop_share", pa.float64(), "text health is off, or no output_ids", "loop_ids as a share of output_ids"),
    Column(
        "n_control_chars",
        pa.int32(),
        "text health is off",
        "control characters in reasoning and content but tab, LF, CR",
    ),
    Column(
        "n_bidi_chars",
        pa.int32(),
        "text health is off",
        "characters that override the direction of text: U+202A–202E, U+2066–2069",
    ),
    Column("lone_surrogates", pa.bool_(), "text health is off", "the reply held half of a surrogate pair (notes)"),
    Column(
        "reasoning_script",
        pa.string(),
        "text health is off, or too few letters",
        "script of most letters of the reasoning: latin, cyrillic, arabic, han, kana, hangul, other",
    ),
    Column("script", pa.string(), "text health is off, or too few letters", "the same of the content"),
    Column(
        "second_script_share",
        pa.float64(),
        "text health is off, or too few letters",
        "letters of the content's second script, as a share of all",
    ),
    Column(
        "language_differs",
        pa.bool_(),
        "text health is off, or prompt and content cannot be compared",
        "the content is in another script than the last message of the user",
    ),
    Column("refusal", pa.bool_(), "text health is off, or no content", "the content begins with a phrase of refusals"),
    Column("boilerplate", pa.bool_(), "text health is off", "reasoning or content holds a phrase of boilerplate"),
    Column("n_secrets", pa.int32(), "text health is off", "what looks like keys and tokens in reasoning and content"),
    Column("secret_kinds", pa.string(), "text health is off, or no secrets", "kinds of these: aws, github, openai …"),
    Column("n_email_addresses", pa.int32(), "text health is off", "e-mail addresses but those of reserved domains"),
    Column(
        "answer_hash",
        pa.int64(),
        "text health is off, or no text",
        "BLAKE2b of reasoning, content and calls, first 64 bits",
    ),
    Column(
        "prompt_hash",
        pa.int64(),
        "text health is off, or the prompt is not known",
        "BLAKE2b of messages and tools, first 64 bits",
    ),
)
"""Facts of text health; all are null where it is switched off."""

MEASURED_COLUMNS: tuple[Column, ...] = (
    Column("n_ids", pa.int32(), "no output_ids", "length of output_ids"),
    Column("n_prompt_ids", pa.int32(), "no prompt_ids", "length of prompt_ids"),
    Column("last_id", pa.int32(), "no output_ids, or empty", "last of output_ids"),
    Column("n_terminal", pa.int32(), "no output_ids", "ids that are a terminal of the contract"),
    Column("n_end_think", pa.int32(), "no output_ids", "ids that end thinking"),
    Column("end_think_at", pa.int32(), "no such id", "index of the first id that ends thinking"),
    Column("n_begin_think", pa.int32(), "no output_ids", "ids that begin thinking"),
    Column("n_tool_calls", pa.int32(), "no output_ids", "ids that begin a tool call"),
    Column("n_tool_markers", pa.int32(), "no output_ids", "ids that mark tool sections and calls"),
    Column("n_control_ids", pa.int32(), "no output_ids", "special ids that belong in no completion"),
    Column("min_id", pa.int32(), "no output_ids, or empty", "smallest id"),
    Column("max_id", pa.int32(), "no output_ids, or empty", "largest id"),
    Column(
        "truncated", pa.bool_(), "", "the answer was cut: engine ids end without a terminal; else as finish reasons say"
    ),
    Column(
        "text_equal",
        pa.bool_(),
        "no output_ids, or no text in the reply",
        "decoded ids are byte for byte the row's text",
    ),
    Column(
        "reencode_equal",
        pa.bool_(),
        "no output_ids, or no text in the reply",
        "the row's text, encoded part by part with another engine than the rebuild's, gives these ids",
    ),
    Column(
        "n_reencoded_ids",
        pa.int32(),
        "no output_ids, or no text in the reply",
        "number of ids that the row's text gives, encoded again in the same way",
    ),
    Column("n_replaced", pa.int32(), "", "U+FFFD in reasoning and content"),
    Column("reasoning_leading_space", pa.bool_(), "no reasoning", "the reasoning begins in white space"),
    Column("reasoning_trailing_space", pa.bool_(), "no reasoning", "the reasoning ends in white space"),
    Column("content_leading_space", pa.bool_(), "no content", "the content begins in white space"),
    Column("content_trailing_space", pa.bool_(), "no content", "the content ends in white space"),
    Column(
        "count_difference", pa.int32(), "no output_ids, or completion_tokens not reported", "n_ids − completion_tokens"
    ),
    Column(
        "reasoning_difference",
        pa.int32(),
        "no id ends thinking, or reasoning_tokens not reported",
        "end_think_at − reasoning_tokens",
    ),
    Column(
        "prompt_difference", pa.int32(), "no prompt_ids, or prompt_tokens not reported", "n_prompt_ids − prompt_tokens"
    ),
    Column(
        "structure",
        pa.string(),
        "nothing wrong, or no output_ids",
        "code of the first thing that the contract's form forbids",
    ),
    Column(
        "tool_fault",
        pa.string(),
        "no call, or nothing wrong",
        "first fault of the calls: tool_id, tool_index, tool_arguments, tool_name, tool_schema",
    ),
    Column(
        "arguments_spaced", pa.bool_(), "no arguments with separators", "white space after the separators of arguments"
    ),
    Column(
        "respaced_ids",
        pa.int32(),
        "no arguments without white space",
        "ids that arguments would gain if their separators were followed by a space",
    ),
    Column("provider_matches_source", pa.bool_(), "", "a provider is named if and only if the source has providers"),
    Column(
        "text_class",
        pa.string(),
        "the ids are not the engine's",
        "tools, code, cjk, digits, spaces, prose: see calibration",
    ),
    Column("said_hash", pa.int64(), "no content and no call", "XXH3 (64 bits) of content and calls"),
    Column(
        "history_hashes",
        pa.list_(pa.int64()),
        "no answer of the assistant in the prompt, or no prompt",
        "the same hash of each message of the assistant in the prompt, in order",
    ),
    *HEALTH_COLUMNS,
)

JUDGED_COLUMNS: tuple[Column, ...] = (
    Column("evidence", pa.string(), "", "engine, logprobs, counted, unverified, contradicted"),
    Column(
        "evidence_reason",
        pa.string(),
        "evidence is engine, logprobs or counted",
        "what is missing or speaks against the ids",
    ),
    Column(
        "count_unexplained",
        pa.int32(),
        "no convention is known, or nothing to compare",
        "count_difference − what the provider's convention predicts",
    ),
    Column(
        "reasoning_unexplained",
        pa.int32(),
        "no convention is known, or nothing to compare",
        "reasoning_difference − what the provider's convention predicts",
    ),
    Column(
        "prompt_unexplained",
        pa.int32(),
        "no convention is known, or nothing to compare",
        "prompt_difference − what the provider's convention predicts",
    ),
    Column("prompt_evidence", pa.string(), "", "engine, counted, unverified, contradicted: the same for the prompt"),
    Column(
        "text_altered", pa.string(), "nothing is known of it", "what the provider does to text: trims, reserialises"
    ),
    Column(
        "history",
        pa.string(),
        "no answer of the assistant in the prompt, or no prompt",
        "whose words those are: own (our earlier turns), foreign (neither), given (the prompt's author's)",
    ),
    Column(
        "history_own", pa.bool_(), "no such answer, or given ones", "our own answers to the earlier turns of the sample"
    ),
    Column("model_named", pa.bool_(), "", "the reply named its model; false: the one that was asked for was assumed"),
    Column(
        "provider_allowed",
        pa.bool_(),
        "no allow list is configured, or no provider",
        "the provider is on the dataset's allow list",
    ),
    Column(
        "duplicate_answer",
        pa.bool_(),
        "text health is off, or no text or ids",
        "a row with another prompt has the same answer of at least 32 ids",
    ),
    Column(
        "duplicate_prompt",
        pa.bool_(),
        "text health is off, or the prompt is not known",
        "another sample_id has the same messages and tools",
    ),
    Column(
        "length_z",
        pa.float64(),
        "text health is off, no ids, or fewer than 30 rows of the mode",
        "log n_ids off its mode's median, in robust standard deviations of at least 0.25",
    ),
)

FACT_COLUMNS: tuple[Column, ...] = (
    *_IDENTITY,
    *_PROVENANCE,
    Column("ids_source", pa.string(), "output_ids is null", "engine, given, logprobs, rebuilt"),
    Column("prompt_ids_source", pa.string(), "prompt_ids is null", "engine, given, rendered"),
    Column("rebuild_status", pa.string(), "", "complete, truncated, ambiguous, answer_missing, reasoning_missing"),
    Column("notes", pa.list_(pa.string()), "", "codes of everything the rules noticed or assumed"),
    Column("shard", pa.string(), "", "sha256 of the shard file"),
    Column("row_index", pa.int32(), "", "position in that shard, from 0"),
    *MEASURED_COLUMNS,
)

_TOO_FEW = "fewer than 20 prompts, or all others answered fewer"
_TOO_RARE = "the same, or fewer than 5 prompts show it or do not"

PROVIDER_COLUMNS: tuple[Column, ...] = (
    Column("name", pa.string(), "", "source, or source/provider"),
    Column("source", pa.string(), "", "as in the rows"),
    Column("provider", pa.string(), "the source has no providers, or none was named", "as in the rows"),
    Column("mode", pa.string(), "", "as in the rows; each mode is a line of its own"),
    Column("rows", pa.int64(), "", "rows, probes included"),
    Column("share", pa.float64(), "", "of the mode's rows, 0 to 1"),
    Column("models", pa.int64(), "", "different model names in its replies"),
    Column("foreign_model_rows", pa.int64(), "", "rows whose model name the contract does not allow"),
    Column("not_allowed_rows", pa.int64(), "", "rows of a provider that the dataset's allow list lacks"),
    Column("proved_share", pa.float64(), "", "rows with evidence engine, logprobs or counted"),
    Column("unverified_share", pa.float64(), "", "rows with evidence unverified"),
    Column("contradicted_share", pa.float64(), "", "rows with evidence contradicted"),
    Column("finish_rows", pa.int64(), "", "rows with a finish reason"),
    Column("length_share", pa.float64(), "no finish reasons", "of these, finish reason length"),
    Column("length_gap", pa.float64(), _TOO_FEW, "length_share − that of all others"),
    Column(
        "length_z",
        pa.float64(),
        _TOO_RARE,
        "standard errors of that gap, by the pooled share and the design effect; never negative",
    ),
    Column("tool_calls_share", pa.float64(), "no finish reasons", "of these, finish reason tool_calls"),
    Column("tool_calls_gap", pa.float64(), _TOO_FEW, "tool_calls_share − that of all others"),
    Column("tool_calls_z", pa.float64(), _TOO_RARE, "standard errors of that gap"),
    Column("measured_rows", pa.int64(), "", "rows with a length: n_ids, else completion_tokens"),
    Column("other_rows", pa.int64(), "", "the same of all others of the mode"),
    Column("median_ids", pa.float64(), "no lengths", "median length in ids"),
    Column("median_ratio", pa.float64(), _TOO_FEW, "median_ids ÷ that of all others"),
    Column(
        "ks_distance", pa.float64(), _TOO_FEW, "Kolmogorov–Smirnov distance of the lengths from all others', 0 to 1"
    ),
    Column(
        "ks_p", pa.float64(), _TOO_FEW, "how likely that is by chance, by the asymptotic series and the design effect"
    ),
    Column("empty_reasoning_share", pa.float64(), "the mode does not think", "rows without reasoning"),
    Column("empty_answer_share", pa.float64(), "", "rows that were not cut and have neither content nor a call"),
    Column("marker_rows", pa.int64(), "", "rows with special tokens spelled in their text"),
    Column("tool_rows", pa.int64(), "", "rows with finish reason tool_calls, their calls known, without faulty ids"),
    Column("schema_ok_rows", pa.int64(), "", "of these, at least one call, and all as their schemas declare"),
    Column("schema_lower", pa.float64(), "no tool rows", "lower 95 % Wilson bound of schema_ok_rows ÷ tool_rows"),
    Column("schema_upper", pa.float64(), "no tool rows", "upper bound of the same"),
    Column("tool_id_faults", pa.int64(), "", "rows with a tool id of another form or order than the contract's"),
    Column(
        "trigger_reference", pa.string(), "no prompts shared with another", "whose calls this one's are held against"
    ),
    Column("trigger_prompts", pa.int64(), "", "prompts that both answered, whole"),
    Column("trigger_calls", pa.int64(), "", "of these, prompts for which either called a tool"),
    Column("trigger_f1", pa.float64(), "no such calls", "F1 of calling, the reference's calls taken as right"),
    Column("usage_rows", pa.int64(), "", "rows whose count is held against a learned convention"),
    Column("usage_drift_share", pa.float64(), "no such rows", "of these, off by more than 1"),
    Column("convention_changes", pa.int64(), "", "times that its way of counting changed within the dataset"),
    Column(
        "cost_per_million_usd", pa.float64(), "no costs", "US dollars ÷ completion_tokens of the rows that state both"
    ),
    Column("latency_p50_s", pa.float64(), "not measured", "median latency in seconds"),
    Column("latency_p95_s", pa.float64(), "not measured", "19 of 20 replies were not slower"),
)
"""The providers table: one line per (source, provider, mode), what suites of table `providers` judge."""

QUARANTINE_COLUMNS: tuple[Column, ...] = (
    Column("row_key", pa.string(), "", "as in the shard"),
    Column("sample_id", pa.string(), "", "as in the shard"),
    Column("turn", pa.int32(), "", "as in the shard"),
    Column("sample_index", pa.int32(), "", "as in the shard"),
    Column("shard", pa.string(), "", "sha256 of the shard file"),
    Column("row_index", pa.int32(), "", "position in that shard, from 0"),
    Column("reasons", pa.list_(pa.string()), "", "ids of the critical expectations that the row fails"),
)

OVERLAP_COLUMNS: tuple[Column, ...] = (
    Column("row_key", pa.string(), "", "as in the shard"),
    Column("sample_id", pa.string(), "", "as in the shard"),
    Column("turn", pa.int32(), "", "as in the shard"),
    Column("sample_index", pa.int32(), "", "as in the shard"),
    Column("stretches", pa.int32(), "", "stretches of 13 words that also stand in an evaluation prompt"),
)

TRAIN_COLUMNS: tuple[Column, ...] = (
    Column("id", pa.string(), "", "dataset/sample_id/turn/sample_index"),
    Column("row_key", pa.string(), "", "as in the shard"),
    Column("dataset", pa.string(), "", "folder name"),
    Column("input_ids", pa.list_(pa.int32()), "", "prompt_ids followed by output_ids"),
    Column("loss_mask", pa.list_(pa.int8()), "", "0 on the prompt, 1 on the completion"),
    Column("prompt_len", pa.int32(), "", "number of prompt ids"),
    Column("seq_len", pa.int32(), "", "number of input_ids"),
    Column("n_supervised", pa.int32(), "", "number of ones in loss_mask"),
    Column("source", pa.string(), "", "as in the shard"),
    Column("provider", pa.string(), "the source has no providers", "as in the shard"),
    Column("model", pa.string(), "as in the shard", "as in the shard"),
    Column("mode", pa.string(), "", "as in the shard"),
    Column("ids_source", pa.string(), "", "as in the shard"),
    Column("prompt_ids_source", pa.string(), "", "as in the shard"),
    Column("finish_reason", pa.string(), "absent in the reply", "as in the shard"),
    Column("prompt_tokens", pa.int32(), "not reported", "as in the shard"),
    Column("completion_tokens", pa.int32(), "not reported", "as in the shard"),
    Column("request_id", pa.string(), "absent in the reply", "as in the shard"),
    Column("created", pa.int64(), "absent in the reply", "as in the shard"),
    Column("contract", pa.string(), "", "as in the shard"),
    Column("contract_sha256", pa.string(), "", "as in the shard"),
    Column("messages", pa.string(), "the prompt is not known", "as in the shard"),
    Column("tools", pa.string(), "no tools were declared", "as in the shard"),
    Column("reasoning", pa.string(), "absent in the reply", "as in the shard"),
    Column("content", pa.string(), "absent in the reply", "as in the shard"),
    Column("tool_calls", pa.string(), "no call", "as in the shard"),
    Column("shard", pa.string(), "", "sha256 of the shard file"),
)


TRAIN_FACT_COLUMNS: tuple[Column, ...] = (
    Column("id", pa.string(), "", "as in the train set"),
    Column("dataset", pa.string(), "", "as in the train set"),
    Column("source", pa.string(), "", "as in the train set"),
    Column("provider", pa.string(), "the source has no providers", "as in the train set"),
    Column("mode", pa.string(), "", "as in the train set"),
    Column("split", pa.string(), "", "train or validation"),
    Column("n_ids", pa.int32(), "", "length of input_ids"),
    Column("n_prompt_ids", pa.int32(), "", "prompt_len, at most n_ids"),
    Column("mask_length_difference", pa.int32(), "", "length of loss_mask − n_ids"),
    Column("seq_len_difference", pa.int32(), "", "seq_len − n_ids"),
    Column("n_mask_other", pa.int32(), "", "values of loss_mask that are neither 0 nor 1"),
    Column("n_prompt_supervised", pa.int32(), "", "ones on the prompt"),
    Column("n_supervised", pa.int32(), "", "ones in all, as they lie there"),
    Column("n_supervised_difference", pa.int32(), "", "n_supervised as the train set states it − the ones"),
    Column("n_gaps", pa.int32(), "nothing is supervised", "breaks within what is supervised"),
    Column(
        "start_difference",
        pa.int32(),
        "nothing of the completion is supervised, or lengths differ",
        "first supervised id of the completion − where the options begin",
    ),
    Column(
        "end_difference",
        pa.int32(),
        "as start_difference, or the last id is a terminal",
        "end of what is supervised − where the options end",
    ),
    Column("n_supervised_in_window", pa.int32(), "", "ones that the trainer's window shows; all without a window"),
    Column("nothing_in_window", pa.bool_(), "", "something is supervised, and all of it lies behind the window"),
    Column("cut_by_window", pa.bool_(), "", "the row is longer than the window, which shows something supervised"),
    Column(
        "adjacent_as_declared",
        pa.bool_(),
        "",
        "the window shows two supervised ids side by side, or the options do not ask for them",
    ),
    Column("truncated", pa.bool_(), "", "the finish reason says that the answer was cut"),
    Column("terminal_last", pa.bool_(), "", "the completion ends with a terminal of the contract"),
    Column(
        "terminal_as_declared",
        pa.bool_(),
        "no terminal is last, nothing is supervised, or lengths differ",
        "that terminal is supervised or masked as the options say",
    ),
    Column("false_terminal", pa.bool_(), "", "truncated, the ids are not the engine's, and a terminal is last"),
    Column(
        "n_history_reasoning",
        pa.int32(),
        "",
        "blocks of thinking in the prompt that hold something and are not its tail",
    ),
    Column("n_outside_vocabulary", pa.int32(), "", "ids below 0 or not below the contract's vocab_size"),
    Column("prompt_on_both_sides", pa.bool_(), "", "rows of the same prompt stand on both sides of the split"),
)
"""Facts of a train set's rows, what the suite of table `train` judges. Nothing of them is kept in a file."""


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of a column list."""
    return pa.schema([column.field() for column in columns])


SHARD_SCHEMA = schema_of(SHARD_COLUMNS)
FACTS_SCHEMA = schema_of(FACT_COLUMNS)
JUDGED_SCHEMA = schema_of((*FACT_COLUMNS, *JUDGED_COLUMNS))
PROVIDERS_SCHEMA = schema_of(PROVIDER_COLUMNS)
QUARANTINE_SCHEMA = schema_of(QUARANTINE_COLUMNS)
TRAIN_SCHEMA = schema_of(TRAIN_COLUMNS)
TRAIN_FACTS_SCHEMA = schema_of(TRAIN_FACT_COLUMNS)
OVERLAP_SCHEMA = schema_of(OVERLAP_COLUMNS)
