package offline

import "time"

// maxSeen is how many objects are remembered that no pod refers to which was
// admitted.
const maxSeen = 256

// read is what the server answered. Its message is shared with who asked.
type read struct {
	message message
	version string
	at      time.Time
}

// seen are the newest objects that were read for pods which are not admitted
// yet. It is bounded in number and, with linger, in time: some pods never are.
type seen struct {
	reads map[key]*read
}

func (s *seen) add(k key, r *read) {
	if _, known := s.reads[k]; !known {
		s.prune(r.at)
	}
	s.reads[k] = r
}

// prune makes room for one more.
func (s *seen) prune(now time.Time) {
	var oldest key
	for k, r := range s.reads {
		if now.Sub(r.at) >= linger {
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
