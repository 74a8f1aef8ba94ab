package event

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/tinylet/tinylet/agent/pod"
)

// A pod may have burst different events of one type, and one more in each interval
// of refill (k8s.io/client-go/tools/record: defaultSpamBurst, defaultSpamQPS).
const (
	burst  = 25
	refill = 5 * time.Minute
)

// maxBuckets bounds the number of token buckets.
const maxBuckets = 256

// rateLimiter is a rate limiter of new events, with a token bucket for each pod and
// event type.
type rateLimiter map[bucketKey]*rate.Limiter

type bucketKey struct {
	ref  pod.Ref
	kind string
}

// allow takes a token from a bucket, and reports whether there was one.
func (l rateLimiter) allow(ref pod.Ref, kind string, now time.Time) bool {
	key := bucketKey{ref, kind}
	b := l[key]
	if b == nil {
		if len(l) >= maxBuckets {
			l.prune(now)
		}
		b = rate.NewLimiter(rate.Every(refill), burst)
		l[key] = b
	}
	return b.AllowN(now, 1)
}

// prune removes the buckets that are full again. If there is none, it removes the
// fullest one.
func (l rateLimiter) prune(now time.Time) {
	var fullest bucketKey
	most := -1.0
	for key, b := range l {
		switch n := b.TokensAt(now); {
		case n >= burst:
			delete(l, key)
		case n > most:
			fullest, most = key, n
		}
	}
	if len(l) >= maxBuckets {
		delete(l, fullest)
	}
}
