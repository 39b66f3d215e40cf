package main

type statusCommand struct{}

func (*statusCommand) Run() error { return nil }

type topCommand struct{}

func (*topCommand) Run() error { return nil }
