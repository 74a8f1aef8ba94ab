package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRestarts(t *testing.T) {
	const (
		in, notIn    = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
		restart, all = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
		always       = v1.ContainerRestartPolicyAlways
		onFailure    = v1.ContainerRestartPolicyOnFailure
		never        = v1.ContainerRestartPolicyNever
	)
	rule := func(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	type rules = []v1.ContainerRestartRule
	for _, tc := range []struct {
		name  string
		pod   v1.RestartPolicy
		own   v1.ContainerRestartPolicy
		rules rules
		code  int32
		want  bool
		all   bool
	}{
		{name: "nothing said", want: true},
		{name: "Always", pod: v1.RestartPolicyAlways, want: true},
		{name: "OnFailure, well", pod: v1.RestartPolicyOnFailure},
		{name: "OnFailure, badly", pod: v1.RestartPolicyOnFailure, code: 1, want: true},
		{name: "Never", pod: v1.RestartPolicyNever, code: 1},
		{name: "own Always", pod: v1.RestartPolicyNever, own: always, want: true},
		{name: "own OnFailure, well", own: onFailure},
		{name: "own OnFailure, badly", pod: v1.RestartPolicyNever, own: onFailure, code: 1, want: true},
		{name: "own Never", own: never, code: 1},
		{name: "an own policy that nobody knows", pod: v1.RestartPolicyNever, own: "Sometimes", code: 1},
		{name: "a rule that matches", own: never, rules: rules{rule(restart, in, 3, 42)}, code: 42, want: true},
		{name: "a rule that does not", own: never, rules: rules{rule(restart, in, 3, 42)}, code: 4},
		{name: "a rule for all others", own: never, rules: rules{rule(restart, notIn, 0)}, code: 4, want: true},
		{name: "but not for this", own: never, rules: rules{rule(restart, notIn, 0)}},
		{name: "the second rule", own: never, rules: rules{rule(restart, in, 1), rule(all, in, 2)}, code: 2, want: true, all: true},
		{name: "the first that matches counts", own: never, rules: rules{rule(restart, in, 1), rule(all, in, 1)}, code: 1, want: true},
		{name: "all", own: always, rules: rules{rule(all, in, 0)}, want: true, all: true},
		{name: "an operator that nobody knows", own: never, rules: rules{rule(restart, "Above", 1)}, code: 1},
		{name: "an action that nobody knows leaves the policy", own: onFailure, rules: rules{rule("Sleep", in, 1)}, code: 1, want: true},
		{name: "a rule without exit codes", own: never, rules: rules{{Action: restart}}, code: 1},
		{name: "a rule without an own policy", pod: v1.RestartPolicyNever, rules: rules{rule(restart, in, 1)}, code: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, c := &v1.PodSpec{RestartPolicy: tc.pod}, &v1.Container{RestartPolicyRules: tc.rules}
			if tc.own != "" {
				c.RestartPolicy = &tc.own
			}
			if got := ShouldRestart(s, c, tc.code); got != tc.want {
				t.Errorf("restarts is %v", got)
			}
			if got := RestartsAllContainers(c, tc.code); got != tc.all {
				t.Errorf("restarts all is %v", got)
			}
		})
	}
	with := v1.Container{RestartPolicyRules: rules{rule(restart, in, 1), rule(all, in, 2)}}
	if HasRestartAllRule(&v1.PodSpec{Containers: []v1.Container{{RestartPolicyRules: with.RestartPolicyRules[:1]}}}) {
		t.Error("no rule restarts all")
	}
	if !HasRestartAllRule(&v1.PodSpec{InitContainers: []v1.Container{with}}) || !HasRestartAllRule(&v1.PodSpec{Containers: []v1.Container{{}, with}}) {
		t.Error("a rule restarts all")
	}
}

func TestContainers(t *testing.T) {
	s := &v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "i"}, {Name: "j"}},
		Containers:          []v1.Container{{Name: "a"}, {Name: "i"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}},
	}
	got := ""
	for c, kind := range Containers(s) {
		got += c.Name + " " + string(kind) + ", "
	}
	if want := "i init, j init, a main, i main, e ephemeral, "; got != want {
		t.Errorf("containers are %s, want %s", got, want)
	}
	for n := range 5 {
		seen := 0
		for range Containers(s) {
			if seen++; seen > n {
				break
			}
		}
		if seen != n+1 {
			t.Errorf("%d containers until the break, want %d", seen, n+1)
		}
	}
	if c, kind := FindContainer(s, "i"); c != &s.InitContainers[0] || kind != Init {
		t.Errorf("i is %v, %v", c, kind)
	}
	if c, kind := FindContainer(s, "e"); kind != Ephemeral || c.Name != "e" {
		t.Errorf("e is %v, %v", c, kind)
	}
	if c, kind := FindContainer(s, "x"); c != nil || kind != "" {
		t.Errorf("x is %v, %v", c, kind)
	}
	c, _ := FindContainer(s, "e")
	c.Image = "img"
	if s.EphemeralContainers[0].Image != "img" {
		t.Error("an ephemeral container is a copy")
	}
}
