package resize_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/resize"
)

var start = time.Unix(1_700_000_000, 500)

// One resize is deferred, its message changes, it becomes infeasible, is allocated,
// fails twice and completes.
func TestConditions(t *testing.T) {
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var c resize.Conditions
	check := func(step string, told, tell bool, pending, progress string, since int) {
		t.Helper()
		show := func(one *v1.PodCondition) string {
			if one == nil {
				return ""
			}
			if one.Status != v1.ConditionTrue || !one.LastProbeTime.IsZero() {
				t.Errorf("%s: %v", step, one)
			}
			return strings.TrimSuffix(one.Reason+" "+one.Message, " ") + "@" + string(rune('0'+one.ObservedGeneration))
		}
		if told != tell || show(c.Pending) != pending || show(c.InProgress) != progress {
			t.Fatalf("%s: told %v, %q, %q; want %v, %q, %q", step, told, show(c.Pending), show(c.InProgress), tell, pending, progress)
		}
		if list := c.List(); len(list) > 0 && list[0].LastTransitionTime.Unix() != at(since).Unix() {
			t.Fatalf("%s: since %v, want %v", step, list[0].LastTransitionTime, at(since))
		}
	}
	deferred := resize.Decision{Outcome: resize.Deferred, Reason: "OutOfcpu", Message: "no cpu"}
	c, tell := c.AfterDecision(deferred, 2, at(1))
	check("deferred", tell, true, "Deferred no cpu@2", "", 1)
	c, tell = c.AfterDecision(deferred, 2, at(2))
	check("deferred again", tell, false, "Deferred no cpu@2", "", 1)
	deferred.Message = "no memory"
	c, tell = c.AfterDecision(deferred, 2, at(3))
	check("another message", tell, false, "Deferred no memory@2", "", 1)
	c, tell = c.AfterDecision(deferred, 3, at(4))
	check("another generation", tell, true, "Deferred no memory@3", "", 1)
	c, tell = c.AfterDecision(resize.Decision{Outcome: resize.Infeasible, Message: "never"}, 4, at(5))
	check("infeasible", tell, true, "Infeasible never@4", "", 5)
	if got := c.PendingSince(); got.Unix() != at(5).Unix() {
		t.Errorf("pending since %v", got)
	}
	c, tell = c.AfterDecision(resize.Decision{Outcome: resize.Unchanged}, 5, at(6))
	check("taken back", tell, false, "", "", 0)
	c, tell = c.AfterDecision(resize.Decision{Outcome: resize.Allocate}, 6, at(7))
	check("allocated", tell, true, "", "@6", 7)
	c, _, settled := c.AfterCheck(false, 7, at(8))
	check("in progress", settled, false, "", "@6", 7)
	c, _, tell = c.AfterError(errors.New("in use"), 7, at(9))
	check("failed", tell, true, "", "Error in use@6", 9)
	c, _, tell = c.AfterError(errors.New("in use"), 7, at(10))
	check("failed again", tell, false, "", "Error in use@6", 9)
	c, _, settled = c.AfterCheck(false, 7, at(11))
	check("the error stays", settled, false, "", "Error in use@6", 9)
	c, tell = c.AfterDecision(resize.Decision{Outcome: resize.Deferred, Message: "no cpu"}, 8, at(12))
	check("the next is deferred", tell, true, "Deferred no cpu@8", "Error in use@6", 12)
	if restored := resize.ConditionsOf(c.List()); *restored.Pending != *c.Pending || *restored.InProgress != *c.InProgress {
		t.Errorf("restored %v, want %v", restored, c)
	}
	c, tell = c.AfterDecision(resize.Decision{Outcome: resize.Allocate}, 8, at(13))
	check("the next is allocated", tell, true, "", "@8", 13)
	c, of, done := c.AfterCheck(true, 9, at(14))
	check("done", done, true, "", "", 0)
	if of != 8 {
		t.Errorf("generation %d is done, want 8", of)
	}
	c, _, done = c.AfterCheck(true, 9, at(15))
	check("nothing", done, false, "", "", 0)
}

func TestEventMessage(t *testing.T) {
	p := newPod(setup("setup", asks("", "", "", "")), app("main", asks("5", "4500Mi", "", "")))
	for _, row := range []struct{ name, prefix, problem, want string }{
		{
			"deferred", resize.PrefixPending + "OutOfcpu", "no cpu",
			`Pod resize OutOfcpu: {"initContainers":[{"name":"setup","resources":{}}],"containers":[{"name":"main","resources":{"requests":{"cpu":"5","memory":"4500Mi"}}}],"generation":2,"error":"no cpu"}`,
		},
		{
			"done", resize.PrefixCompleted, "",
			`Pod resize completed: {"initContainers":[{"name":"setup","resources":{}}],"containers":[{"name":"main","resources":{"requests":{"cpu":"5","memory":"4500Mi"}}}],"generation":2}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := resize.EventMessage(row.prefix, p, 2, row.problem); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// Conditions of the API server may become known late: conditions set meanwhile stay,
// with their times.
func TestContinue(t *testing.T) {
	now := start.Add(time.Hour)
	deferred := resize.Decision{Outcome: resize.Deferred, Message: "no cpu"}
	heard, _ := resize.Conditions{}.AfterDecision(deferred, 2, start)
	heard, _, _ = heard.AfterCheck(false, 1, start)
	found, _, _ := resize.Conditions{}.AfterCheck(false, 2, now)
	failed, _, _ := resize.Conditions{}.AfterError(errors.New("no"), 2, now)
	decided, _ := resize.Conditions{}.AfterDecision(deferred, 2, now)
	for name, row := range map[string]struct {
		has, was, want resize.Conditions
	}{
		"nothing":                     {},
		"nothing was heard":           {found, resize.Conditions{}, found},
		"nothing was found":           {resize.Conditions{}, heard, heard},
		"the same resize goes on":     {found, heard, heard},
		"an error since":              {failed, heard, resize.Conditions{Pending: heard.Pending, InProgress: failed.InProgress}},
		"a decision since":            {decided, heard, resize.Conditions{Pending: decided.Pending, InProgress: heard.InProgress}},
		"an error that was heard":     {found, failed, failed},
		"one and the other was heard": {found, decided, resize.Conditions{Pending: decided.Pending, InProgress: found.InProgress}},
	} {
		if got := row.has.Merge(row.was); got != row.want {
			t.Errorf("%s: %v, want %v", name, got.List(), row.want.List())
		}
	}
}
