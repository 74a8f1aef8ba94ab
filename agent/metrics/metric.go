// Package metrics owns the form in which the agent tells Prometheus of itself:
// families of samples, written as text (version 0.0.4 of the exposition
// format) by a Stream, and what such samples are counted in: Counts, Timing,
// Timings and Histogram. Counting costs some nanoseconds and no memory once a
// row is there, and nothing is made of it until somebody asks. There is no
// registry: who counts writes its own families.
package metrics

// ContentType is the media type of what a Stream writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"
