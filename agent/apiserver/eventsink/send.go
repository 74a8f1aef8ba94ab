package eventsink

import (
	"cmp"
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
	"github.com/tinylet/tinylet/agent/wait"
)

const (
	// maxTries limits the attempts for an event to which the server answers 500, as in
	// Kubernetes.
	maxTries = 12
	// maxNames limits the names that are tried for an event.
	maxNames = 3
)

// key identifies an event of the recorder, regardless of its count.
type key struct {
	pod          pod.Ref
	kind, reason string
	message      string // "" if combined
	first        int64  // in ns since 1970
}

func keyOf(e *event.Event) key {
	k := key{pod: e.Pod, kind: e.Type, reason: e.Reason, message: e.Message, first: e.First.UnixNano()}
	if strings.HasPrefix(e.Message, event.Combined) {
		k.message = ""
	}
	return k
}

// sentEvent is the state of an event on the API server.
type sentEvent struct {
	namespace, name string // of the object
	stamp           int64  // ns since 1970, for the next name
	first           time.Time
	there           bool      // the server has the object
	unsure          bool      // the server may have it: a response was lost
	count           int       // the last count that was sent or dropped
	next            time.Time // when a higher count may be sent
	held            bool      // a higher count waits for next
	tries           int
}

// alarm returns when the first held event may be sent; zero means none.
func (s *Sink) alarm() time.Time {
	var first time.Time
	for _, k := range s.sent {
		if k.held && (first.IsZero() || k.next.Before(first)) {
			first = k.next
		}
	}
	return first
}

// forgetBut removes the events that the recorder has dropped.
func (s *Sink) forgetBut(events []event.Event) {
	remembered := make(map[key]struct{}, len(events))
	for i := range events {
		remembered[keyOf(&events[i])] = struct{}{}
	}
	for key := range s.sent {
		if _, ok := remembered[key]; !ok {
			delete(s.sent, key)
		}
	}
}

// send sends an event unless the server has it, or a lower count was sent recently.
// It returns an error only for an outage or if ctx ended.
func (s *Sink) send(ctx context.Context, e *event.Event) error {
	now := time.Now()
	key := keyOf(e)
	k := s.sent[key]
	if k == nil {
		k = s.meet(e, now)
		s.sent[key] = k
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
		s.recovered()
	}
	k.count, k.next = e.Count, time.Now().Add(wait.Longer(s.config.Coalesce))
	k.unsure, k.tries = false, 0
	return nil
}

// meet returns the state of an event of which nothing was sent.
func (s *Sink) meet(e *event.Event, now time.Time) *sentEvent {
	about := regarding(e, s.config.NodeName)
	k := &sentEvent{namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), first: wall(e.First, now, now.Round(0))}
	k.stamp = k.first.UnixNano()
	s.rename(k, about.Name)
	return k
}

// try creates or patches the object. Its error is an outage if the same event is to be
// sent again later.
func (s *Sink) try(ctx context.Context, k *sentEvent, e *event.Event) error {
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
			k.there = false // the server deletes events after a time
		case created && apierrors.IsAlreadyExists(err) && names < maxNames:
			names++
			s.rename(k, regarding(e, s.config.NodeName).Name)
		case retriable(err):
			k.unsure = true
			if apiclient.StatusCode(err) == http.StatusInternalServerError {
				k.tries++ // the event itself may cause it
			}
			if k.tries >= maxTries {
				return err
			}
			return &outage{err}
		default:
			return err
		}
	}
}

func (s *Sink) request(ctx context.Context, k *sentEvent, e *event.Event) error {
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

// retriable reports whether a retry may succeed: no response, 401, 429, 5xx, or an error
// with a status below 400.
func retriable(err error) bool {
	code := apiclient.StatusCode(err)
	return code == http.StatusUnauthorized || code == http.StatusTooManyRequests || code >= 500 || code < 400
}
