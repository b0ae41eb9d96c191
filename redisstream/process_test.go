package redisstream_test

const roleVariable = "EVENTBUS_TEST_ROLE"

func play(string) int { return 2 }
