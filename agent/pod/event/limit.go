package event

import (
	"time"

	"github.com/tinylet/tinylet/agent/pod"
)

// A pod may have burst different events of one type, and one more each refill
// (k8s.io/client-go/tools/record: defaultSpamBurst, defaultSpamQPS).
const (
	burst  = 25
	refill = 5 * time.Minute
)

// maxBuckets bounds the number of token buckets.
const maxBuckets = 256

// rateLimiter is a rate limiter of new events, with a token bucket for each pod and
// event type.
type rateLimiter struct {
	buckets map[bucketKey]bucket
}

type bucketKey struct {
	ref  pod.Ref
	kind string
}

type bucket struct {
	tokens int
	since  time.Time // when the bucket had that many tokens
}

// at returns the bucket, refilled up to now.
func (b bucket) at(now time.Time) bucket {
	n := int64(now.Sub(b.since) / refill)
	if n >= int64(burst-b.tokens) {
		return bucket{burst, now}
	}
	if n > 0 {
		b.tokens += int(n)
		b.since = b.since.Add(time.Duration(n) * refill)
	}
	return b
}

// allow takes a token from a bucket, and reports whether there was one.
func (l *rateLimiter) allow(ref pod.Ref, kind string, now time.Time) bool {
	key := bucketKey{ref, kind}
	b, ok := l.buckets[key]
	if !ok {
		if l.buckets == nil {
			l.buckets = make(map[bucketKey]bucket)
		}
		if len(l.buckets) >= maxBuckets {
			l.prune(now)
		}
		b = bucket{burst, now}
	}
	b = b.at(now)
	if b.tokens == 0 {
		l.buckets[key] = b
		return false
	}
	b.tokens--
	l.buckets[key] = b
	return true
}

// prune removes the buckets that are full again. If there is none, it removes the
// oldest one.
func (l *rateLimiter) prune(now time.Time) {
	var oldest bucketKey
	for key, b := range l.buckets {
		if b.at(now).tokens == burst {
			delete(l.buckets, key)
			continue
		}
		if since := l.buckets[oldest].since; since.IsZero() || b.since.Before(since) {
			oldest = key
		}
	}
	if len(l.buckets) >= maxBuckets {
		delete(l.buckets, oldest)
	}
}
