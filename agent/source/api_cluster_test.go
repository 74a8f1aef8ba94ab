package source_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// cluster is a fake API server that keeps pods, their history and its watches,
// and can inject faults.
type cluster struct {
	t *testing.T

	mu        sync.Mutex
	revision  int
	pods      map[types.UID]*v1.Pod
	history   []watch.Event
	revisions []int // of history
	compacted int   // what is up to here is no longer told
	states    []string
	watches   map[*stream]struct{}
	calls     []string
	mute      bool // watches get no bookmarks
	// fail may refuse a call, such as "list 0" or "watch 12".
	fail func(call string) error
	// open may do something to a watch that begins.
	open func(*stream)
}

// stream is one watch.
type stream struct {
	c      *cluster
	events chan watch.Event
	once   sync.Once
	end    *time.Timer
}

func newCluster(t *testing.T, pods ...*v1.Pod) *cluster {
	c := &cluster{t: t, revision: 7, pods: map[types.UID]*v1.Pod{}, watches: map[*stream]struct{}{}}
	c.states = []string{c.state()}
	for _, p := range pods {
		c.put(p)
	}
	return c
}

func (s *stream) ResultChan() <-chan watch.Event { return s.events }

func (s *stream) Stop() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.close()
}

// close is for who holds the cluster's lock.
func (s *stream) close() {
	s.once.Do(func() {
		s.end.Stop()
		delete(s.c.watches, s)
		close(s.events)
	})
}

func (c *cluster) called(options metav1.ListOptions, verb string, r apiclient.Resource) (version int, err error) {
	if options.FieldSelector != "spec.nodeName=n" || r.String() != "pods" {
		c.t.Errorf("%s of %s by %q", verb, r, options.FieldSelector)
	}
	call := verb + " " + options.ResourceVersion
	c.calls = append(c.calls, call)
	if c.fail != nil {
		if err := c.fail(call); err != nil {
			return 0, err
		}
	}
	version, _ = strconv.Atoi(options.ResourceVersion)
	return version, nil
}

func (c *cluster) List(_ context.Context, r apiclient.Resource, _ string, options metav1.ListOptions, into runtime.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, err := c.called(options, "list", r)
	if err != nil {
		return err
	}
	if version > c.revision {
		return tooLarge()
	}
	list := into.(*v1.PodList)
	list.ResourceVersion = strconv.Itoa(c.revision)
	for _, p := range c.pods {
		list.Items = append(list.Items, *p.DeepCopy())
	}
	return nil
}

func (c *cluster) Watch(ctx context.Context, r apiclient.Resource, _ string, options metav1.ListOptions) (watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !options.AllowWatchBookmarks || options.TimeoutSeconds == nil || *options.TimeoutSeconds < 300 || *options.TimeoutSeconds > 600 {
		c.t.Errorf("watch with %+v", options)
	}
	version, err := c.called(options, "watch", r)
	if err != nil {
		return nil, err
	}
	if version < c.compacted {
		return nil, expired()
	}
	s := &stream{c: c, events: make(chan watch.Event, 16384)}
	limit := time.Duration(*options.TimeoutSeconds) * time.Second
	s.end = time.AfterFunc(limit, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if ctx.Err() == nil && !c.mute {
			s.events <- bookmark(max(c.revision, version))
		}
		s.close()
	})
	c.watches[s] = struct{}{}
	for i, e := range c.history {
		if c.revisions[i] > version {
			s.events <- copied(e)
		}
	}
	if c.open != nil {
		c.open(s)
	}
	return s, nil
}

func copied(e watch.Event) watch.Event {
	return watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
}

func bookmark(version int) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}}
}

func expired() error {
	return fmt.Errorf("watch pods: %w", apierrors.NewResourceExpired("too old resource version"))
}

func tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

// put creates or changes a pod, remove deletes one.
func (c *cluster) put(p *v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := watch.Added
	if c.pods[p.UID] != nil {
		kind = watch.Modified
	}
	c.happen(kind, p.DeepCopy())
}

func (c *cluster) remove(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.happen(watch.Deleted, c.pods[uid].DeepCopy())
}

func (c *cluster) happen(kind watch.EventType, p *v1.Pod) {
	c.revision++
	p.ResourceVersion = strconv.Itoa(c.revision)
	if kind == watch.Deleted {
		delete(c.pods, p.UID)
	} else {
		c.pods[p.UID] = p
	}
	c.history = append(c.history, watch.Event{Type: kind, Object: p})
	c.revisions = append(c.revisions, c.revision)
	c.states = append(c.states, c.state())
	for s := range c.watches {
		s.events <- copied(c.history[len(c.history)-1])
	}
}

// send tells all watches what never happened.
func (c *cluster) send(e watch.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.watches {
		s.events <- e
	}
}

// cut ends all watches, with a last event if there is one.
func (c *cluster) cut(last ...watch.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.watches {
		for _, e := range last {
			s.events <- e
		}
		s.close()
	}
}

func (c *cluster) compact() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compacted = c.revision
}

// failing makes calls fail that begin with a text, nil for none.
func (c *cluster) failing(fail func(call string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = fail
}

// opening does something to each watch that begins; nil does nothing.
func (c *cluster) opening(open func(*stream)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = open
}

// watched is how many watches are open.
func (c *cluster) watched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watches)
}

// made is the calls since the last time.
func (c *cluster) made() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// count is how many calls were made since made was called.
func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// state is what a source has to want at this moment.
func (c *cluster) state() string {
	var wanted []string
	for _, p := range c.pods {
		if p.Annotations["kubernetes.io/config.mirror"] == "" && p.Spec.NodeName == "n" {
			wanted = append(wanted, shown(p))
		}
	}
	slices.Sort(wanted)
	return fmt.Sprint(wanted)
}

// shown is a pod as name/uid=tag.
func shown(p *v1.Pod) string {
	text := p.Name + "/" + string(p.UID)
	for _, c := range p.Spec.Containers {
		_, tag, _ := strings.Cut(c.Image, ":")
		text += "=" + tag
	}
	if p.DeletionTimestamp != nil {
		text += " ending"
	}
	return text
}
