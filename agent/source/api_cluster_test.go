package source_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

// cluster is an API server with pods. Calls are texts, such as "list 0" and "watch 12".
type cluster struct {
	*apiservertest.Server
	t        *testing.T
	states   []string // all that there were
	reported int      // calls that made returned
}

func newCluster(t *testing.T, pods ...*v1.Pod) *cluster {
	c := &cluster{t: t, Server: apiservertest.New()}
	c.Restore(7)
	c.OnChange(func(all []apiservertest.Object) { c.states = append(c.states, state(all)) })
	for _, p := range pods {
		c.Put(p)
	}
	return c
}

func callText(c apiservertest.Call) string { return c.Verb + " " + c.List.ResourceVersion }

// made returns the calls since the last time.
func (c *cluster) made() []string {
	var made []string
	for _, call := range c.Calls()[c.reported:] {
		made = append(made, callText(call))
	}
	c.reported += len(made)
	return made
}

// count returns the number of calls since made was called.
func (c *cluster) count() int { return len(c.Calls()) - c.reported }

// failing makes calls fail; nil makes none fail.
func (c *cluster) failing(fail func(call string) error) {
	if fail == nil {
		c.SetFaults(apiservertest.Faults{})
		return
	}
	c.SetFaults(apiservertest.Faults{Before: func(_ context.Context, call apiservertest.Call) error { return fail(callText(call)) }})
}

// check checks the form of all calls.
func (c *cluster) check() {
	c.t.Helper()
	for _, call := range c.Calls() {
		o := call.List
		if o.FieldSelector != "spec.nodeName=n" || call.Resource != apiclient.Pods ||
			call.Verb == "watch" && (!o.AllowWatchBookmarks || o.TimeoutSeconds == nil || *o.TimeoutSeconds < 300 || *o.TimeoutSeconds > 600) {
			c.t.Errorf("%s with %+v", call, o)
		}
	}
}

func (c *cluster) remove(uid types.UID) {
	for _, p := range apiservertest.All[*v1.Pod](c.Server) {
		if p.UID == uid {
			c.Remove(apiclient.Pods, p.Namespace, p.Name)
		}
	}
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

// state is the set that a source has to deliver for the pods of a cluster.
func state(all []apiservertest.Object) string {
	var desired []string
	for _, o := range all {
		p := o.(*v1.Pod)
		if p.Annotations["kubernetes.io/config.mirror"] == "" && p.Spec.NodeName == "n" {
			desired = append(desired, shown(p))
		}
	}
	slices.Sort(desired)
	return fmt.Sprint(desired)
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
