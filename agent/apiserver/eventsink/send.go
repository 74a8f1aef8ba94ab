package eventsink

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
)

const (
	// maxTries is how often a server may break over one event, as in
	// Kubernetes.
	maxTries = 12
	// maxNames is how many names are tried for an event.
	maxNames = 3
)

// combined begins the message of an event that stands for many (package
// event); it differs each time.
const combined = "(combined from similar events): "

// key is one event of the recorder's, however often it happened.
type key struct {
	pod          pod.Ref
	kind, reason string
	message      string // "" if combined
	first        int64  // in ns since 1970
}

func keyOf(e *event.Event) key {
	k := key{pod: e.Pod, kind: e.Type, reason: e.Reason, message: e.Message, first: e.First.UnixNano()}
	if strings.HasPrefix(e.Message, combined) {
		k.message = ""
	}
	return k
}

// known is what was sent of an event.
type known struct {
	namespace, name string // of the object
	stamp           int64  // ns since 1970, for the next name
	first           time.Time
	there           bool      // the server has the object
	unsure          bool      // it may have it: an answer got lost
	count           int       // that was sent, or dropped
	next            time.Time // when a higher count may be sent
	held            bool      // a higher count waits for that
	tries           int
}

// alarm is when the first event that is held back may be sent; zero for none.
func (s *Sink) alarm() time.Time {
	var first time.Time
	for _, k := range s.known {
		if k.held && (first.IsZero() || k.next.Before(first)) {
			first = k.next
		}
	}
	return first
}

// forgetBut forgets what the recorder has forgotten.
func (s *Sink) forgetBut(events []event.Event) {
	remembered := make(map[key]struct{}, len(events))
	for i := range events {
		remembered[keyOf(&events[i])] = struct{}{}
	}
	for key := range s.known {
		if _, ok := remembered[key]; !ok {
			delete(s.known, key)
		}
	}
}

// send makes the server know an event, unless it does, or heard of it lately.
// Its error is an outage, or ctx ended.
func (s *Sink) send(ctx context.Context, e *event.Event) error {
	now := time.Now()
	key := keyOf(e)
	k := s.known[key]
	if k == nil {
		k = s.meet(e, now)
		s.known[key] = k
	}
	if e.Count <= k.count {
		return nil
	}
	if k.held = now.Before(k.next); k.held {
		return nil
	}
	err := s.try(ctx, k, e)
	if failure := (*outage)(nil); errors.As(err, &failure) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		s.drop(e, err)
	} else {
		s.rose()
	}
	k.count, k.next = e.Count, time.Now().Add(jittered(s.config.Coalesce))
	k.unsure, k.tries = false, 0
	return nil
}

// meet is an event of which nothing was sent.
func (s *Sink) meet(e *event.Event, now time.Time) *known {
	about := regarding(e, s.config.NodeName)
	k := &known{namespace: about.Namespace, first: wall(e.First, now, now.Round(0))}
	if k.namespace == "" {
		k.namespace = metav1.NamespaceDefault
	}
	k.stamp = k.first.UnixNano()
	s.rename(k, about.Name)
	return k
}

// try creates or patches the object. Its error is an outage, if the same may
// be taken later.
func (s *Sink) try(ctx context.Context, k *known, e *event.Event) error {
	for names := 1; ; {
		if s.limiter != nil {
			if err := s.limiter.Wait(ctx); err != nil {
				return &outage{err}
			}
		}
		created := !k.there
		err := s.request(ctx, k, e)
		switch {
		case err == nil, created && k.unsure && apierrors.IsAlreadyExists(err):
			k.there = true
			return nil
		case !created && apierrors.IsNotFound(err):
			k.there = false // the server forgets events after a time
		case created && apierrors.IsAlreadyExists(err) && names < maxNames:
			names++
			s.rename(k, regarding(e, s.config.NodeName).Name)
		case later(err):
			k.unsure = true
			if k.tries += broke(err); k.tries >= maxTries {
				return err
			}
			return &outage{err}
		default:
			return err
		}
	}
}

func (s *Sink) request(ctx context.Context, k *known, e *event.Event) error {
	now := time.Now()
	last := wall(e.Last, now, now.Round(0))
	if k.there {
		patch, err := patchOf(e, last)
		if err != nil {
			return err
		}
		return s.config.API.Patch(ctx, apiclient.CoreEvents, k.namespace, k.name, "", types.MergePatchType, patch, nil)
	}
	return s.config.API.Create(ctx, apiclient.CoreEvents, k.namespace, "", "", objectOf(e, k, last, s.config.NodeName), nil)
}

// later says whether the server may take later what it did not take now: it
// did not answer, does not know this node at the moment, or is overloaded.
func later(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code >= 500 || code < 400
}

// broke is 1 where the error may be the event's own fault.
func broke(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError {
		return 1
	}
	return 0
}
