// Package metrics writes the agent's metrics in Prometheus' text format (version
// 0.0.4 of the exposition format) with a Stream, and holds their values: CounterVec,
// Timing, TimingVec and Histogram. Counting allocates no memory once a row exists.
// Text is made only for a scrape. There is no registry: each component writes its own
// metric families.
package metrics

// ContentType is the media type of what a Stream writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"
