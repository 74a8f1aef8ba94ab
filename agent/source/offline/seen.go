package offline

import "time"

// maxSeen bounds the cached objects that no admitted pod references.
const maxSeen = 256

// read is an answer of the API server. Its message is shared with the reader.
type read struct {
	message message
	version string
	at      time.Time
}

// recentReads caches the most recent objects that were read for pods which are not
// admitted yet. It is bounded by number and by age, since some pods are never
// admitted.
type recentReads struct {
	reads map[key]*read
}

func (s *recentReads) add(k key, r *read) {
	if _, known := s.reads[k]; !known {
		s.prune(r.at)
	}
	s.reads[k] = r
}

// prune makes room for one more object.
func (s *recentReads) prune(now time.Time) {
	var oldest key
	for k, r := range s.reads {
		if now.Sub(r.at) >= retention {
			delete(s.reads, k)
			continue
		}
		if first := s.reads[oldest]; first == nil || r.at.Before(first.at) {
			oldest = k
		}
	}
	if len(s.reads) >= maxSeen {
		delete(s.reads, oldest)
	}
}
